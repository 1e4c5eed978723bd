#include "edge/net/receiver.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/bytes.h"
#include "common/base/crc32c.h"
#include "common/base/status.h"
#include "common/rpc/status_conv.h"
#include "common/rpc/wire.h"

namespace sparkv {
namespace {

// Credit goes back in pieces of this size, so that a small window still flows.
constexpr uint64_t kCreditBytes = 64 << 10;

ItemRef FromProto(const v1::ItemRef& item) { return {item.column(), item.layer(), item.plane()}; }

std::string Show(const ItemRef& item) {
  return absl::StrCat("item (", item.column, ", ", item.layer, ", ", item.plane, ")");
}

}  // namespace

Receiver::Receiver(std::shared_ptr<v1::KvCache::Stub> stub, const FetchOptions& options,
                   const Manifest& manifest, std::string shown)
    : stub_(std::move(stub)), options_(options), manifest_(manifest), shown_(std::move(shown)) {}

Receiver::~Receiver() { Stop(); }

void Receiver::Start(ItemSink* sink) {
  sink_ = sink;
  v1::FetchRequest open;
  open.mutable_open()->set_context_id(AsStringView(options_.context_id).data(),
                                      options_.context_id.size());
  open.mutable_open()->set_model_fingerprint(AsStringView(options_.model_fingerprint).data(),
                                             options_.model_fingerprint.size());
  open.mutable_open()->set_codec_digest(AsStringView(options_.codec_digest).data(),
                                        options_.codec_digest.size());
  open.mutable_open()->set_window_bytes(options_.window_bytes);
  {
    absl::MutexLock lock(&mutex_);
    requests_.push_front(std::move(open));
  }
  // The metadata goes with the first message, on the writer: here nothing waits for a connection.
  context_.set_initial_metadata_corked(true);
  call_ = stub_->Fetch(&context_);
  writer_ = std::thread([this] { WriteRequests(); });
  reader_ = std::thread([this] { ReadResponses(); });
}

void Receiver::Post(v1::FetchRequest request) {
  absl::MutexLock lock(&mutex_);
  if (!closing_) requests_.push_back(std::move(request));
}

void Receiver::Order(std::vector<ItemRef> items, bool replace) {
  for (size_t begin = 0; begin < items.size() || (replace && begin == 0); begin += kMaxOrderItems) {
    v1::FetchRequest request;
    request.mutable_order()->set_replace(replace && begin == 0);
    for (size_t i = begin; i < std::min<size_t>(items.size(), begin + kMaxOrderItems); ++i) {
      v1::ItemRef* item = request.mutable_order()->add_items();
      item->set_column(items[i].column);
      item->set_layer(items[i].layer);
      item->set_plane(items[i].plane);
    }
    Post(std::move(request));
  }
}

void Receiver::Cancel(std::vector<ItemRef> items) {
  v1::FetchRequest request;
  for (const ItemRef& ref : items) {
    v1::ItemRef* item = request.mutable_cancel()->add_items();
    item->set_column(ref.column);
    item->set_layer(ref.layer);
    item->set_plane(ref.plane);
  }
  if (!items.empty()) Post(std::move(request));
}

void Receiver::WriteRequests() {
  while (true) {
    v1::FetchRequest request;
    {
      absl::MutexLock lock(&mutex_);
      const auto wake = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return closing_ || !requests_.empty();
      };
      mutex_.Await(absl::Condition(&wake));
      if (closing_) return;
      request = std::move(requests_.front());
      requests_.pop_front();
    }
    if (!call_->Write(request)) return;  // the reader learns why
  }
}

absl::Status Receiver::TakeFrame(const v1::FetchResponse::Frame& frame) {
  const ItemRef item = FromProto(frame.item());
  if (item.column >= manifest_.columns.size() || item.layer >= manifest_.geometry.layers ||
      item.plane >= manifest_.planes) {
    return absl::DataLossError(absl::StrCat(Show(item), " is not in the manifest"));
  }
  const ItemInfo& info = manifest_.item(item.column, item.layer, item.plane);
  if (frame.offset() == 0) {
    current_ = item;
    assembled_.clear();
    assembled_.reserve(info.bytes);
  } else if (!(item == current_) || frame.offset() != assembled_.size()) {
    return absl::DataLossError(absl::StrCat(Show(item), ": a frame at offset ", frame.offset(),
                                            " does not continue at ", assembled_.size()));
  }
  if (frame.data().size() > kMaxFrameBytes ||
      frame.data().size() > info.bytes - assembled_.size()) {
    return absl::DataLossError(
        absl::StrCat(Show(item), ": more than the ", info.bytes, " bytes of the manifest"));
  }
  bytes_.fetch_add(frame.data().size(), std::memory_order_relaxed);
  assembled_ += frame.data();
  unacknowledged_ += frame.data().size();
  if (unacknowledged_ >= kCreditBytes || frame.last()) {
    v1::FetchRequest credit;
    credit.mutable_window()->set_consumed_bytes(std::exchange(unacknowledged_, 0));
    Post(std::move(credit));
  }
  if (!frame.last()) return absl::OkStatus();
  std::string bytes = std::exchange(assembled_, "");
  if (bytes.size() != info.bytes) {
    sink_->OnItemFailed(
        item, absl::DataLossError(absl::StrCat(Show(item), ": ", bytes.size(),
                                               " bytes, the manifest says ", info.bytes)));
  } else if (Crc32c(AsBytes(bytes)) != info.crc32c) {
    sink_->OnItemFailed(item,
                        absl::DataLossError(absl::StrCat(Show(item), ": the checksum is wrong")));
  } else {
    sink_->OnItem(item, std::move(bytes));
  }
  return absl::OkStatus();
}

void Receiver::ReadResponses() {
  v1::FetchResponse response;
  absl::Status broken;
  while (broken.ok() && call_->Read(&response)) {
    if (stopped_.load()) break;
    switch (response.kind_case()) {
      case v1::FetchResponse::kFrame:
        broken = TakeFrame(response.frame());
        break;
      case v1::FetchResponse::kFailed:
        sink_->OnItemFailed(FromProto(response.failed().item()),
                            absl::Status(StatusCodeFromWire(response.failed().code()),
                                         response.failed().message()));
        break;
      default:
        break;  // opened, cancelled: nothing to do
    }
  }
  if (!broken.ok()) context_.TryCancel();
  const absl::Status finished = FromGrpc(call_->Finish());
  if (stopped_.load()) return;
  if (broken.ok())
    broken = finished.ok() ? absl::UnavailableError("the server ended the stream") : finished;
  sink_->OnBroken(
      absl::Status(broken.code(), absl::StrCat("server ", shown_, ": ", broken.message())));
}

void Receiver::Stop() {
  if (stopped_.exchange(true)) return;
  {
    absl::MutexLock lock(&mutex_);
    closing_ = true;
  }
  context_.TryCancel();
  if (writer_.joinable()) writer_.join();
  if (reader_.joinable()) reader_.join();
}

}  // namespace sparkv
