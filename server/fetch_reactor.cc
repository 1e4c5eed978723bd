#include "server/fetch_reactor.h"

#include <grpcpp/server_context.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/status.h"
#include "common/rpc/status_conv.h"
#include "common/rpc/wire.h"

namespace sparkv {
namespace {

// What is sent at once: an edge sees the link's rate, and a cancelled item ends, after so much.
constexpr uint32_t kSentFrameBytes = 32u << 10;
static_assert(kSentFrameBytes <= kMaxFrameBytes);

std::vector<ItemKey> Keys(const google::protobuf::RepeatedPtrField<v1::ItemRef>& items) {
  std::vector<ItemKey> keys;
  keys.reserve(static_cast<size_t>(items.size()));
  for (const v1::ItemRef& item : items) keys.push_back({item.column(), item.layer(), item.plane()});
  return keys;
}

void SetItem(const ItemKey& key, v1::ItemRef* item) {
  item->set_column(key.column);
  item->set_layer(key.layer);
  item->set_plane(key.plane);
}

}  // namespace

std::shared_ptr<FetchReactor> FetchReactor::Start(grpc::CallbackServerContext* context,
                                                  Store* store, ThreadPool* io,
                                                  std::function<void(FetchReactor*)> on_done) {
  std::shared_ptr<FetchReactor> reactor(new FetchReactor(context, store, io, std::move(on_done)));
  reactor->self_ = reactor;
  reactor->StartRead(&reactor->request_);
  return reactor;
}

FetchReactor::FetchReactor(grpc::CallbackServerContext* context, Store* store, ThreadPool* io,
                           std::function<void(FetchReactor*)> on_done)
    : context_(context),
      store_(store),
      io_(io),
      on_done_(std::move(on_done)),
      last_activity_(absl::Now()) {}

void FetchReactor::OnDone() {
  const std::shared_ptr<FetchReactor> self = std::move(self_);
  {
    const std::lock_guard<std::recursive_mutex> lock(context_mutex_);
    context_ = nullptr;
  }
  on_done_(this);
}

void FetchReactor::OnCancel() { End(absl::CancelledError("the client cancelled the stream")); }

void FetchReactor::End(const absl::Status& status) {
  {
    absl::MutexLock lock(&mutex_);
    if (!end_) end_ = status;
  }
  Pump();
}

void FetchReactor::EndIfStalled(absl::Duration limit) {
  bool stuck = false;
  {
    absl::MutexLock lock(&mutex_);
    if (finished_ || absl::Now() - last_activity_ <= limit) return;
    stuck = busy_;
    if (!end_)
      end_ = absl::UnavailableError(
          absl::StrCat("nothing moved on the stream for ", absl::FormatDuration(limit)));
  }
  if (!stuck) return Pump();
  const std::lock_guard<std::recursive_mutex> lock(context_mutex_);
  if (context_ != nullptr) context_->TryCancel();
}

void FetchReactor::EndIfIdle() {
  {
    absl::MutexLock lock(&mutex_);
    draining_ = true;
  }
  Pump();
}

void FetchReactor::OnReadDone(bool ok) {
  absl::Status status;
  bool open = false;
  {
    absl::MutexLock lock(&mutex_);
    last_activity_ = absl::Now();
    if (!ok) {
      if (stream_) {
        stream_->HalfClose();
      } else if (!end_) {
        end_ = absl::InvalidArgumentError(
            "the stream ended before its first request, which must be `open`");
      }
    } else if (end_) {
      return;  // nothing is read any more
    } else if (!open_seen_) {
      open_seen_ = true;
      open = true;
    } else {
      status = Handle(request_);
    }
  }
  if (!ok) return Pump();
  if (open) status = HandleOpen(request_);
  if (!status.ok()) return End(status);
  if (open) return;  // the next read starts when the context is open
  StartRead(&request_);
  Pump();
}

absl::Status FetchReactor::Handle(const v1::FetchRequest& request) {
  switch (request.kind_case()) {
    case v1::FetchRequest::kOrder:
      return stream_->Order(Keys(request.order().items()), request.order().replace());
    case v1::FetchRequest::kCancel:
      return stream_->Cancel(Keys(request.cancel().items()));
    case v1::FetchRequest::kWindow:
      return stream_->Window(request.window().consumed_bytes(), request.window().window_bytes());
    case v1::FetchRequest::kOpen:
      return absl::InvalidArgumentError("open: the stream is open already");
    case v1::FetchRequest::KIND_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("kind: is not set or not known to this server");
}

absl::Status FetchReactor::HandleOpen(const v1::FetchRequest& request) {
  if (!request.has_open()) return absl::InvalidArgumentError("the first request must be `open`");
  const v1::FetchRequest::Open& open = request.open();
  ASSIGN_OR_RETURN(const Digest id, DigestField(open.context_id(), "context_id"));
  ASSIGN_OR_RETURN(const Digest model, DigestField(open.model_fingerprint(), "model_fingerprint"));
  ASSIGN_OR_RETURN(const Digest codec, DigestField(open.codec_digest(), "codec_digest"));
  if (open.window_bytes() > kMaxWindowBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("window_bytes: got ", open.window_bytes(), ", allowed: 0..", kMaxWindowBytes));
  }
  const uint64_t window = open.window_bytes() == 0 ? kDefaultWindowBytes : open.window_bytes();
  {
    absl::MutexLock lock(&mutex_);
    if (busy_ || finished_) return absl::OkStatus();  // it has ended meanwhile
    busy_ = true;
  }
  io_->Post([self = self_, id, model, codec, window] {
    const absl::Status status = self->Open(id, model, codec, window);
    if (status.ok()) {
      self->StartRead(&self->request_);
    } else {
      absl::MutexLock lock(&self->mutex_);
      if (!self->end_) self->end_ = status;
    }
    self->Drive(/*on_pool=*/true);
  });
  return absl::OkStatus();
}

absl::Status FetchReactor::Open(const Digest& id, const Digest& model, const Digest& codec,
                                uint64_t window) {
  ASSIGN_OR_RETURN(reader_, store_->OpenContext(id));
  const Manifest& manifest = reader_->manifest();
  if (manifest.model_fingerprint != model) {
    return absl::FailedPreconditionError(absl::StrCat("model_fingerprint: the context is of model ",
                                                      DigestToHex(manifest.model_fingerprint),
                                                      ", got ", DigestToHex(model)));
  }
  if (manifest.codec_digest != codec) {
    return absl::FailedPreconditionError(absl::StrCat("codec_digest: the context is of codec ",
                                                      DigestToHex(manifest.codec_digest), ", got ",
                                                      DigestToHex(codec)));
  }
  absl::MutexLock lock(&mutex_);
  stream_.emplace(FetchShape{static_cast<uint32_t>(manifest.columns.size()),
                             manifest.geometry.layers, manifest.planes},
                  window,
                  FetchLimits{.frame_bytes = kSentFrameBytes,
                              .max_window_bytes = kMaxWindowBytes,
                              .max_message_items = kMaxOrderItems});
  send_opened_ = true;
  return absl::OkStatus();
}

void FetchReactor::OnWriteDone(bool ok) {
  {
    absl::MutexLock lock(&mutex_);
    last_activity_ = absl::Now();
    if (!ok && !end_) end_ = absl::CancelledError("the client has gone");
  }
  Drive(/*on_pool=*/false);
}

void FetchReactor::Pump() {
  {
    absl::MutexLock lock(&mutex_);
    if (busy_ || finished_) return;
    busy_ = true;
  }
  Drive(/*on_pool=*/false);
}

void FetchReactor::Drive(bool on_pool) {
  for (;;) {
    std::optional<absl::Status> finish;
    std::optional<ItemKey> load;
    {
      absl::MutexLock lock(&mutex_);
      if (end_) {
        finished_ = true;
        finish = *end_;
      } else if (!stream_) {
        if (!draining_) {
          busy_ = false;
          return;
        }
        end_ = absl::UnavailableError("the server is shutting down");
        continue;
      } else if (send_opened_) {
        send_opened_ = false;
        response_.mutable_opened()->set_columns(
            static_cast<uint32_t>(reader_->manifest().columns.size()));
      } else {
        const FetchStream::Step step = stream_->Next();
        switch (step.action) {
          case FetchStream::Action::kWait:
            if (draining_) {
              end_ = absl::UnavailableError("the server is shutting down");
              continue;
            }
            busy_ = false;
            return;
          case FetchStream::Action::kDone:
            end_ = absl::OkStatus();
            continue;
          case FetchStream::Action::kLoad:
            load = step.item;
            break;
          case FetchStream::Action::kFrame: {
            v1::FetchResponse::Frame* frame = response_.mutable_frame();
            SetItem(step.item, frame->mutable_item());
            frame->set_offset(step.offset);
            frame->set_data(step.data.data(), step.data.size());
            frame->set_last(step.last);
            break;
          }
          case FetchStream::Action::kFailed: {
            v1::FetchResponse::Failed* failed = response_.mutable_failed();
            SetItem(step.item, failed->mutable_item());
            const grpc::Status status = ToGrpc(step.error);
            failed->set_code(status.error_code());
            failed->set_message(status.error_message());
            break;
          }
          case FetchStream::Action::kCancelled:
            SetItem(step.item, response_.mutable_cancelled()->mutable_item());
            break;
        }
      }
    }
    if (finish) {
      reader_.reset();  // unpins before the client can know
      Finish(ToGrpc(*finish));
      return;
    }
    if (!load) {
      StartWrite(&response_);
      return;
    }
    const auto read = [](FetchReactor* r, const ItemKey& key) {
      absl::StatusOr<std::string> bytes = r->reader_->ReadItem(key.column, key.layer, key.plane);
      absl::MutexLock lock(&r->mutex_);
      r->stream_->Loaded(std::move(bytes));
    };
    if (!on_pool) {
      io_->Post([self = self_, read, key = *load] {
        read(self.get(), key);
        self->Drive(/*on_pool=*/true);
      });
      return;
    }
    read(this, *load);
  }
}

}  // namespace sparkv
