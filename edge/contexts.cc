#include "edge/contexts.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/bytes.h"
#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/codec/dec_aatc.h"
#include "common/kv/context_id.h"
#include "common/rpc/wire.h"
#include "edge/prompt.h"

namespace sparkv {
namespace {

constexpr absl::Duration kLookupDeadline = absl::Seconds(3);

int64_t UnixMilliseconds() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::string ServerReason(const absl::Status& status) {
  if (status.code() == absl::StatusCode::kUnavailable ||
      status.code() == absl::StatusCode::kDeadlineExceeded) {
    return absl::StrCat("server unavailable: ", status.message());
  }
  return std::string(status.message());  // names the server
}

// Of any codec that this build can load, with a profile or without.
absl::StatusOr<const CodecInfo*> FindCodecInfo(std::string_view name) {
  for (const CodecInfo* info : {&AatcInfo(), &AatcPredInfo()}) {
    if (info->name == name) return info;
  }
  const absl::StatusOr<const BlockDecoder*> decoder = FindDecoder(name);
  if (decoder.ok()) return &(*decoder)->info();
  return absl::FailedPreconditionError(absl::StrCat(decoder.status().message(), ", ",
                                                    std::string(AatcInfo().name), ", ",
                                                    std::string(AatcPredInfo().name)));
}

// On the server a context may have no name: nothing means none.
absl::Status CheckReference(const std::string& reference) {
  return reference.empty() ? absl::InvalidArgumentError("context: it is empty") : absl::OkStatus();
}

v1::EdgeContext ToProto(const CatalogueEntry& entry) {
  v1::EdgeContext out;
  out.set_id(DigestToHex(entry.id));
  out.set_name(entry.name);
  out.set_tokens(static_cast<uint32_t>(entry.tokens.size()));
  out.set_codec(entry.codec);
  out.set_raw(entry.raw);
  out.set_on_server(entry.on_server);
  out.set_stored_bytes(entry.stored_bytes);
  out.set_created_unix_ms(entry.created_unix_ms);
  out.mutable_level_bytes()->Add(entry.level_bytes.begin(), entry.level_bytes.end());
  return out;
}

v1::EdgeContext ToProto(const v1::ContextInfo& info, const Digest& id) {
  v1::EdgeContext out;
  out.set_id(DigestToHex(id));
  if (CheckPrintable(info.name()).ok()) out.set_name(info.name());
  out.set_tokens(info.tokens());
  out.set_codec(info.codec());
  out.set_on_server(true);
  out.set_stored_bytes(info.stored_bytes());
  out.set_created_unix_ms(info.created_unix_ms());
  *out.mutable_level_bytes() = info.level_bytes();
  return out;
}

}  // namespace

Contexts::Contexts(std::shared_ptr<const Model> model, std::unique_ptr<Catalogue> catalogue,
                   ServerClient* server, ProfileStore* profiles, ContextsOptions options)
    : model_(std::move(model)),
      catalogue_(std::move(catalogue)),
      server_(server),
      profiles_(profiles),
      options_(std::move(options)) {}

absl::Status Contexts::CheckModel(const CatalogueEntry& entry) const {
  if (entry.model_fingerprint != model_->fingerprint()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the context '", entry.name, "' belongs to another model (fingerprint ",
        DigestToHex(entry.model_fingerprint).substr(0, 12), ", this daemon's is ",
        DigestToHex(model_->fingerprint()).substr(0, 12), "); add it again with this model"));
  }
  const int32_t vocabulary = model_->tokenizer().size();
  for (const int32_t id : entry.tokens) {
    if (id < 0 || id >= vocabulary) {
      return absl::DataLossError(absl::StrCat("the context '", entry.name, "' has the token id ",
                                              id, "; the model's are 0 to ", vocabulary - 1));
    }
  }
  const uint32_t context_length = model_->config().context_length;
  if (entry.tokens.size() > context_length) {
    return absl::FailedPreconditionError(absl::StrCat("the context has ", entry.tokens.size(),
                                                      " tokens; the model takes ", context_length));
  }
  return absl::OkStatus();
}

std::string Contexts::Mismatch(const CatalogueEntry& entry, const Manifest& manifest) const {
  if (manifest.context_id != entry.id) return "it answered with another context's manifest";
  if (manifest.model_fingerprint != model_->fingerprint()) return "model fingerprint mismatch";
  const KvGeometry geometry = model_->config().Geometry(manifest.geometry.dtype);
  if (!(manifest.geometry == geometry)) {
    return absl::StrCat("KV geometry mismatch: ", manifest.geometry.ToString(), ", the model's is ",
                        geometry.ToString());
  }
  const absl::StatusOr<const CodecInfo*> info = FindCodecInfo(manifest.codec);
  if (!info.ok()) return absl::StrCat("codec mismatch: ", info.status().message());
  const Digest* profile = manifest.profile_digest ? &*manifest.profile_digest : nullptr;
  if ((*info)->needs_profile != (profile != nullptr)) {
    return absl::StrCat("codec mismatch: it stored '", manifest.codec, "' with",
                        profile == nullptr ? "out" : "", " a profile");
  }
  if (manifest.codec != entry.codec || manifest.codec_digest != entry.codec_digest ||
      manifest.codec_digest != CodecDigest(**info, profile) ||
      manifest.planes != static_cast<uint32_t>((*info)->planes)) {
    return absl::StrCat("codec mismatch: it stored '", manifest.codec, "' with another profile");
  }
  if (manifest.tokens != entry.tokens) return "its token ids differ";
  return "";
}

void Contexts::UseManifest(Manifest manifest, const CancelledFn& cancelled,
                           ResolvedContext* context) {
  std::string reason = Mismatch(context->entry, manifest);
  if (reason.empty() && manifest.profile_digest) {
    const Digest& digest = *manifest.profile_digest;
    absl::StatusOr<std::shared_ptr<const CodecProfile>> profile = profiles_->Get(digest);
    if (absl::IsNotFound(profile.status())) {
      const absl::Duration begin = RealClock().Now();
      profile = profiles_->Wait(digest, options_.profile_wait, cancelled);
      context->profile_ms = absl::ToDoubleMilliseconds(RealClock().Now() - begin);
      if (profile.ok()) context->profile_bytes = (*profile)->bytes().size();
    }
    if (!profile.ok()) {
      reason = absl::StrCat("the profile of codec ", manifest.codec,
                            " cannot be used: ", profile.status().message());
      if (absl::IsUnavailable(profile.status())) {
        reason = absl::StrCat("the profile of codec ", manifest.codec,
                              " is being fetched, this context is computed here until then: ",
                              profile.status().message());
      }
    } else if (const KvGeometry& g = (*profile)->shape().geometry;
               g.layers != manifest.geometry.layers || g.kv_heads != manifest.geometry.kv_heads ||
               g.head_dim != manifest.geometry.head_dim ||
               (*profile)->shape().d_model != model_->config().d_model) {
      reason = absl::StrCat("the profile of codec ", manifest.codec, " is for K and V of ",
                            g.ToString(), ", not ", manifest.geometry.ToString());
    } else {
      context->profile = *std::move(profile);
    }
  }
  if (reason.empty()) {
    context->manifest = std::move(manifest);
  } else {
    context->degraded = absl::StrCat("server ", server_->target(), ": ", reason);
  }
}

void Contexts::LookUp(ResolvedContext* context, CancelledFn cancelled) {
  if (server_ == nullptr) return;
  const absl::Duration begin = RealClock().Now();
  absl::StatusOr<Manifest> manifest =
      server_->Lookup(context->entry.id, kLookupDeadline, nullptr, cancelled);
  if (manifest.ok()) {
    UseManifest(*std::move(manifest), cancelled, context);
  } else if (manifest.status().code() == absl::StatusCode::kNotFound) {
    // The id covers the model, so a server with another model cannot have it: say which of the two
    // it is.
    const std::string state = ServerState();
    context->degraded =
        state.rfind("mismatch", 0) == 0
            ? absl::StrCat("server ", server_->target(), ": ", state)
            : absl::StrCat("server ", server_->target(), " does not have this context");
  } else {
    context->degraded = ServerReason(manifest.status());
  }
  context->lookup_ms = absl::ToDoubleMilliseconds(RealClock().Now() - begin) - context->profile_ms;
}

absl::StatusOr<uint32_t> Contexts::LevelFor(const CatalogueEntry& entry, uint32_t level,
                                            uint32_t fallback) const {
  constexpr uint32_t kMaxLevel = 64;
  if (level > kMaxLevel)
    return absl::InvalidArgumentError(
        absl::StrCat("level: got ", level, ", at most ", kMaxLevel, " is allowed"));
  const absl::StatusOr<const CodecInfo*> found = FindCodecInfo(entry.codec);
  if (!found.ok()) return 0;
  const CodecInfo& info = **found;
  if (level == 0 && fallback <= kMaxLevel && info.PlanesForLevel(static_cast<int>(fallback)).ok())
    level = fallback;
  if (level == 0) level = static_cast<uint32_t>(info.default_level);
  RETURN_IF_ERROR(info.PlanesForLevel(static_cast<int>(level)).status());
  return level;
}

std::string Contexts::ServerState() {
  if (server_ == nullptr) return "none";
  const absl::StatusOr<v1::ServerInfo> info = server_->Info(kLookupDeadline);
  if (!info.ok()) return absl::StrCat("unavailable: ", info.status().message());
  if (info->model_fingerprint() != AsStringView(model_->fingerprint())) {
    const absl::StatusOr<Digest> other = DigestFromBytes(info->model_fingerprint());
    return absl::StrCat("mismatch: model fingerprint mismatch, it serves ", info->model_name(),
                        " (", other.ok() ? DigestToHex(*other).substr(0, 12) : "?",
                        "), this daemon has ", model_->config().name, " (",
                        DigestToHex(model_->fingerprint()).substr(0, 12), ")");
  }
  return "ok";
}

absl::StatusOr<ResolvedContext> Contexts::Resolve(const std::string& reference,
                                                  const CancelledFn& cancelled) {
  RETURN_IF_ERROR(CheckReference(reference));
  absl::StatusOr<CatalogueEntry> entry = catalogue_->Resolve(reference);
  if (entry.ok()) {
    RETURN_IF_ERROR(CheckModel(*entry));
    return ResolvedContext{.entry = *std::move(entry)};
  }
  if (entry.status().code() != absl::StatusCode::kNotFound) return entry.status();
  if (server_ == nullptr) {
    return absl::NotFoundError(
        absl::StrCat("no context '", reference, "' here; `context ls` lists them"));
  }
  return ResolveOnServer(reference, cancelled);
}

absl::StatusOr<ResolvedContext> Contexts::ResolveOnServer(const std::string& reference,
                                                          const CancelledFn& cancelled) {
  const absl::Duration begin = RealClock().Now();
  const auto missing = [&](const absl::Status& status) {
    if (absl::IsCancelled(status)) return status;
    return absl::NotFoundError(
        absl::StrCat("no context '", reference, "' here, and ", ServerReason(status)));
  };
  absl::StatusOr<Digest> id = DigestFromHex(reference);
  if (!id.ok()) {
    const absl::StatusOr<std::vector<v1::ContextInfo>> list = server_->List(cancelled);
    if (!list.ok()) return missing(list.status());
    std::map<std::string, std::string> by_name;  // id -> name
    std::map<std::string, std::string> by_prefix;
    for (const v1::ContextInfo& info : *list) {
      const absl::StatusOr<Digest> digest = DigestFromBytes(info.context_id());
      if (!digest.ok() || info.model_fingerprint() != AsStringView(model_->fingerprint())) continue;
      const std::string hex = DigestToHex(*digest);
      if (info.name() == reference) by_name[hex] = info.name();
      if (LooksLikeContextId(reference) && hex.compare(0, reference.size(), reference) == 0) {
        by_prefix[hex] = info.name();
      }
    }
    const std::map<std::string, std::string>& found = by_name.empty() ? by_prefix : by_name;
    if (found.empty()) {
      return absl::NotFoundError(
          absl::StrCat("no context '", reference, "' here nor on the server ", server_->target()));
    }
    if (found.size() > 1) {
      return absl::InvalidArgumentError(absl::StrCat(
          "'", reference, "' is ambiguous on the server: ",
          absl::StrJoin(found, ", ",
                        [](std::string* out, const std::pair<const std::string, std::string>& one) {
                          absl::StrAppend(out, one.first, " (", one.second, ")");
                        })));
    }
    id = DigestFromHex(found.begin()->first);
  }
  RETURN_IF_ERROR(id.status());
  std::string name;
  absl::StatusOr<Manifest> manifest = server_->Lookup(*id, kLookupDeadline, &name, cancelled);
  if (!manifest.ok()) return missing(manifest.status());

  ResolvedContext context;
  context.entry.id = *id;
  context.entry.name = name.empty() ? DigestToHex(*id).substr(0, 16) : name;
  context.entry.codec = manifest->codec;
  context.entry.model_fingerprint = manifest->model_fingerprint;
  context.entry.codec_digest = manifest->codec_digest;
  context.entry.on_server = true;
  context.entry.created_unix_ms = UnixMilliseconds();
  context.entry.tokens = manifest->tokens;
  RETURN_IF_ERROR(CheckModel(context.entry));
  // The id is a content address: a manifest that claims another one's ids would be served under
  // this name for ever.
  const std::vector<Digest> keys = ColumnKeys(
      {.model_fingerprint = manifest->model_fingerprint, .codec_digest = manifest->codec_digest},
      manifest->tokens);
  if (keys.empty() || keys.back() != *id) {
    return absl::DataLossError(absl::StrCat("server ", server_->target(), ": the token ids of ",
                                            DigestToHex(*id), " do not give this id"));
  }
  if (const absl::StatusOr<v1::ContextInfo> info = server_->Show(*id, cancelled); info.ok()) {
    context.entry.stored_bytes = info->stored_bytes();
    context.entry.level_bytes.assign(info->level_bytes().begin(), info->level_bytes().end());
  }
  absl::Status recorded = catalogue_->Put(context.entry);
  if (!recorded.ok()) {  // the server's name is taken or not allowed here
    context.entry.name = DigestToHex(*id).substr(0, 16);
    recorded = catalogue_->Put(context.entry);
  }
  if (!recorded.ok()) {
    context.recorded = false;
    context.degraded = absl::StrCat("could not record the context: ", recorded.message());
  }
  UseManifest(*std::move(manifest), cancelled, &context);
  context.lookup_ms = absl::ToDoubleMilliseconds(RealClock().Now() - begin) - context.profile_ms;
  return context;
}

absl::StatusOr<Contexts::CodecChoice> Contexts::ChooseProfile(
    const CodecInfo& codec, bool named, const absl::StatusOr<v1::ServerInfo>& server,
    const CancelledFn& cancelled) {
  const std::string name(codec.name);
  const auto with = [&](const CodecProfile& profile) {
    return CodecChoice{.name = name, .digest = CodecDigest(codec, &profile.digest())};
  };
  const auto without = [&](const absl::Status& status) -> absl::StatusOr<CodecChoice> {
    if (named || absl::IsCancelled(status)) return status;
    ASSIGN_OR_RETURN(const CodecInfo* const info, FindCodecInfo(kDefaultCodec));
    return CodecChoice{
        .name = std::string(kDefaultCodec),
        .digest = CodecDigest(*info),
        .degraded = absl::StrCat("codec ", name, " is not used for this context, ",
                                 std::string(kDefaultCodec), " is: ", status.message())};
  };
  std::optional<Digest> digest;
  if (server.ok()) {
    for (const v1::ServerProfile& one : server->profiles()) {
      if (one.codec() != codec.name) continue;
      const absl::StatusOr<Digest> bytes = DigestFromBytes(one.digest());
      if (!bytes.ok()) {
        return without(absl::DataLossError(
            absl::StrCat("server ", server_->target(),
                         " sent a bad profile digest: ", bytes.status().message())));
      }
      digest = *bytes;
    }
    if (!digest) {
      return without(absl::FailedPreconditionError(
          absl::StrCat("codec: server ", server_->target(), " has no profile of ", name)));
    }
  } else {
    const absl::StatusOr<std::shared_ptr<const CodecProfile>> latest = profiles_->Latest(name);
    if (latest.ok()) return with(**latest);
    const std::string why =
        absl::StrCat("codec: ", latest.status().message(), ", and ", server.status().message());
    return without(absl::IsFailedPrecondition(server.status()) ? absl::FailedPreconditionError(why)
                                                               : absl::UnavailableError(why));
  }
  const absl::StatusOr<std::shared_ptr<const CodecProfile>> profile =
      profiles_->Wait(*digest, named ? kProfileLimit : options_.profile_wait, cancelled);
  if (profile.ok()) return with(**profile);
  if (absl::IsCancelled(profile.status()) || absl::IsUnavailable(profile.status()) ||
      absl::IsFailedPrecondition(profile.status())) {
    return without(profile.status());
  }
  return without(absl::UnavailableError(profile.status().message()));
}

absl::StatusOr<Contexts::CodecChoice> Contexts::ChooseCodec(const v1::AddContextRequest& request,
                                                            const std::vector<int32_t>& tokens,
                                                            const CancelledFn& cancelled) {
  const bool named = !request.codec().empty();
  if (!named) {
    // The same again: it stays the same context, whatever is the default now.
    for (const CatalogueEntry& known : catalogue_->List()) {
      if (known.name != request.name() || known.tokens != tokens || known.raw != request.raw() ||
          known.model_fingerprint != model_->fingerprint()) {
        continue;
      }
      const absl::StatusOr<const CodecInfo*> info = FindCodecInfo(known.codec);
      if (info.ok() && ((*info)->needs_profile || CodecDigest(**info) == known.codec_digest)) {
        return CodecChoice{.name = known.codec, .digest = known.codec_digest};
      }
    }
  }
  std::string wanted = named ? request.codec() : options_.codec;
  absl::StatusOr<v1::ServerInfo> server = absl::UnavailableError("no server is configured");
  const auto ask = [&] {
    if (server_ == nullptr) return;
    server = server_->Info(kLookupDeadline);
    if (server.ok() && server->model_fingerprint() != AsStringView(model_->fingerprint())) {
      server = absl::FailedPreconditionError(
          absl::StrCat("server ", server_->target(), " has another model"));
    }
  };
  if (wanted.empty()) {
    ask();
    if (server.ok() && server->codecs_size() > 0) wanted = server->codecs(0);
    if (!FindCodecInfo(wanted).ok()) wanted = kDefaultCodec;
  }
  const absl::StatusOr<const CodecInfo*> info = FindCodecInfo(wanted);
  if (!info.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("codec: ", info.status().message()));
  }
  if (!(*info)->needs_profile) {
    return CodecChoice{.name = wanted, .digest = CodecDigest(**info)};
  }
  if (!server.ok()) ask();
  return ChooseProfile(**info, named, server, cancelled);
}

absl::StatusOr<v1::AddContextResponse> Contexts::Add(
    const v1::AddContextRequest& request, const CancelToken& cancel,
    const std::function<void(const v1::AddContextResponse&)>& progress) {
  if (request.text().size() > kMaxRequestTextBytes) {
    return absl::InvalidArgumentError(absl::StrCat("text: got ", request.text().size(),
                                                   " bytes, at most ", kMaxRequestTextBytes,
                                                   " are allowed"));
  }
  if (request.system().size() > kMaxSystemBytes) {
    return absl::InvalidArgumentError(absl::StrCat("system: got ", request.system().size(),
                                                   " bytes, at most ", kMaxSystemBytes,
                                                   " are allowed"));
  }
  CatalogueEntry entry;
  entry.name = request.name();
  entry.model_fingerprint = model_->fingerprint();
  entry.raw = request.raw();
  entry.created_unix_ms = UnixMilliseconds();
  ASSIGN_OR_RETURN(entry.tokens,
                   ContextIds(*model_, request.text(), request.raw(), request.system(),
                              [&cancel] { return cancel.cancelled(); }));
  if (entry.tokens.empty()) return absl::InvalidArgumentError("text: the document has no tokens");
  RETURN_IF_ERROR(CheckModel(entry));
  if (entry.tokens.size() == model_->config().context_length) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the context has ", entry.tokens.size(), " tokens; that leaves no room for an answer"));
  }
  ASSIGN_OR_RETURN(const CodecChoice codec,
                   ChooseCodec(request, entry.tokens, [&cancel] { return cancel.cancelled(); }));
  entry.codec = codec.name;
  entry.codec_digest = codec.digest;
  entry.id =
      ColumnKeys({.model_fingerprint = entry.model_fingerprint, .codec_digest = entry.codec_digest},
                 entry.tokens)
          .back();
  for (const CatalogueEntry& known : catalogue_->List()) {
    if (known.id == entry.id && known.name == entry.name)
      entry.created_unix_ms = known.created_unix_ms;
  }
  RETURN_IF_ERROR(
      catalogue_->Put(entry));  // from here on it can be answered about, whatever the server does

  v1::AddContextResponse response;
  const uint32_t total = static_cast<uint32_t>(entry.tokens.size());
  response.set_tokens_total(total);
  if (!codec.degraded.empty()) response.add_degraded(codec.degraded);
  if (server_ != nullptr) {
    v1::PrecomputeRequest precompute;
    precompute.mutable_tokens()->Add(entry.tokens.begin(), entry.tokens.end());
    precompute.set_model_fingerprint(std::string(AsStringView(entry.model_fingerprint)));
    precompute.set_codec(entry.codec);
    precompute.set_name(entry.name);
    const absl::StatusOr<v1::ContextInfo> info = server_->Precompute(
        precompute,
        [&](const v1::PrecomputeProgress& step) {
          v1::AddContextResponse message;
          message.set_tokens_done(step.tokens_done());
          message.set_tokens_total(step.tokens_total());
          message.set_seconds_left(step.seconds_left());
          progress(message);
        },
        cancel);
    if (info.ok() && info->context_id() == AsStringView(entry.id)) {
      entry.on_server = true;
      entry.stored_bytes = info->stored_bytes();
      entry.level_bytes.assign(info->level_bytes().begin(), info->level_bytes().end());
      RETURN_IF_ERROR(catalogue_->Put(entry));
    } else if (info.ok()) {
      response.add_degraded(
          absl::StrCat("server ", server_->target(),
                       ": it stored the context under another id; it will be computed here"));
    } else {
      // Of our own doing: the client has gone, or the daemon stops.
      if (absl::IsCancelled(info.status())) return info.status();
      const std::string state =
          info.status().code() == absl::StatusCode::kFailedPrecondition ? ServerState() : "";
      response.add_degraded(state.rfind("mismatch", 0) == 0
                                ? absl::StrCat("server ", server_->target(), ": ", state)
                                : ServerReason(info.status()));
    }
  }
  response.set_tokens_done(total);
  *response.mutable_done() = ToProto(entry);
  return response;
}

v1::ListContextsResponse Contexts::List(const CancelledFn& cancelled) {
  v1::ListContextsResponse response;
  std::set<std::string> known;
  for (const CatalogueEntry& entry : catalogue_->List()) {
    *response.add_contexts() = ToProto(entry);
    known.insert(DigestToHex(entry.id));
  }
  for (const std::string& broken : catalogue_->broken()) {
    response.add_degraded(absl::StrCat("unreadable context file ", broken));
  }
  if (server_ == nullptr) return response;
  const absl::StatusOr<std::vector<v1::ContextInfo>> list = server_->List(cancelled);
  if (!list.ok()) {
    response.add_degraded(ServerReason(list.status()));
    return response;
  }
  std::set<std::string> on_server;
  for (const v1::ContextInfo& info : *list) {
    const absl::StatusOr<Digest> id = DigestFromBytes(info.context_id());
    if (!id.ok() || info.model_fingerprint() != AsStringView(model_->fingerprint())) continue;
    on_server.insert(DigestToHex(*id));
    if (known.count(DigestToHex(*id)) == 0) *response.add_contexts() = ToProto(info, *id);
  }
  for (v1::EdgeContext& context : *response.mutable_contexts()) {
    context.set_on_server(on_server.count(context.id()) > 0);
  }
  return response;
}

absl::StatusOr<v1::EdgeContext> Contexts::Show(const std::string& reference,
                                               const CancelledFn& cancelled) {
  RETURN_IF_ERROR(CheckReference(reference));
  absl::StatusOr<CatalogueEntry> entry = catalogue_->Resolve(reference);
  if (!entry.ok() && (server_ == nullptr || entry.status().code() != absl::StatusCode::kNotFound)) {
    return entry.status();
  }
  if (!entry.ok()) {
    ASSIGN_OR_RETURN(const ResolvedContext context, ResolveOnServer(reference, cancelled));
    return ToProto(context.entry);
  }
  v1::EdgeContext out = ToProto(*entry);
  if (server_ != nullptr) {
    const absl::StatusOr<v1::ContextInfo> info = server_->Show(entry->id, cancelled);
    if (info.ok()) {
      out.set_on_server(true);
      out.set_stored_bytes(info->stored_bytes());
      *out.mutable_level_bytes() = info->level_bytes();
    } else if (info.status().code() == absl::StatusCode::kNotFound) {
      out.set_on_server(false);
    }
  }
  return out;
}

absl::StatusOr<v1::DeleteContextResponse> Contexts::Delete(const std::string& reference,
                                                           std::vector<Digest>* gone,
                                                           const CancelledFn& cancelled) {
  RETURN_IF_ERROR(CheckReference(reference));
  v1::DeleteContextResponse response;
  absl::StatusOr<std::vector<CatalogueEntry>> removed = catalogue_->Remove(reference);
  if (removed.ok()) {
    for (const CatalogueEntry& entry : *removed) {
      if (!catalogue_->Contains(entry.id) &&
          std::find(gone->begin(), gone->end(), entry.id) == gone->end()) {
        gone->push_back(entry.id);
      }
    }
  } else {
    if (server_ == nullptr || removed.status().code() != absl::StatusCode::kNotFound)
      return removed.status();
    ASSIGN_OR_RETURN(const ResolvedContext context,
                     ResolveOnServer(reference, cancelled));  // which records it
    catalogue_->Remove(DigestToHex(context.entry.id)).IgnoreError();
    gone->push_back(context.entry.id);
  }
  if (server_ == nullptr) return response;
  for (const Digest& id : *gone) {
    const absl::Status status = server_->Delete(id).status();
    if (!status.ok() && status.code() != absl::StatusCode::kNotFound) {
      response.add_degraded(absl::StrCat("it stays on the server: ", ServerReason(status)));
    }
  }
  return response;
}

}  // namespace sparkv
