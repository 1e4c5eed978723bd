// The contexts that this daemon can answer about: its own catalogue, and what the server knows.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/cancel.h"
#include "common/codec/codec.h"
#include "common/codec/profile.h"
#include "common/kv/manifest.h"
#include "common/llm/model.h"
#include "edge/catalogue.h"
#include "edge/net/server_client.h"
#include "edge/profiles.h"
#include "sparkv/v1/edge.pb.h"

namespace sparkv {

// A context that a request named.
struct ResolvedContext {
  CatalogueEntry entry;
  std::optional<Manifest>
      manifest;  // when the server has it and it fits this model, codec and these ids
  // Of the manifest's codec; null for codecs without one.
  std::shared_ptr<const CodecProfile> profile;
  std::string degraded;        // why there is no manifest although a server is configured
  bool recorded = true;        // in the catalogue
  double lookup_ms = 0;        // without profile_ms
  double profile_ms = 0;       // waiting for the profile
  uint64_t profile_bytes = 0;  // that came meanwhile
};

struct ContextsOptions {
  std::string codec;  // of contexts that are added without one; empty: the server's default
  // How long a request waits for a codec's profile before it does without.
  absl::Duration profile_wait;
};

// How long an added context waits for the profile of a codec that was asked for by name.
inline constexpr absl::Duration kProfileLimit = absl::Seconds(120);

// Thread-safe. `cancelled` ends what waits for the server: Cancelled.
class Contexts {
 public:
  // server: null when none is configured. server and profiles must outlive this.
  Contexts(std::shared_ptr<const Model> model, std::unique_ptr<Catalogue> catalogue,
           ServerClient* server, ProfileStore* profiles, ContextsOptions options);

  // Finds a context here, else on the server (and records it). NotFound, InvalidArgument
  // (ambiguous), FailedPrecondition (it belongs to another model or is longer than the model
  // takes).
  absl::StatusOr<ResolvedContext> Resolve(const std::string& reference,
                                          const CancelledFn& cancelled);
  // Asks the server for the manifest. Never fails: `degraded` says why there is none; where only
  // the codec's profile is missing here, its fetch has begun. Without a server: nothing.
  void LookUp(ResolvedContext* context, CancelledFn cancelled);
  // The codec level that a request for `level` means: 0 is `fallback`, and where that is 0 or no
  // level of the context's codec, the codec's default. InvalidArgument for any other level that the
  // codec lacks; 0 when the codec is unknown here, so that nothing can be streamed.
  absl::StatusOr<uint32_t> LevelFor(const CatalogueEntry& entry, uint32_t level,
                                    uint32_t fallback) const;

  // Tokenizes, records and, with a server, has it precomputed. Which codec: see
  // AddContextRequest.codec. `progress` gets messages without `done`.
  absl::StatusOr<v1::AddContextResponse> Add(
      const v1::AddContextRequest& request, const CancelToken& cancel,
      const std::function<void(const v1::AddContextResponse&)>& progress);
  v1::ListContextsResponse List(const CancelledFn& cancelled);
  absl::StatusOr<v1::EdgeContext> Show(const std::string& reference, const CancelledFn& cancelled);
  // The ids whose last name went are added to *gone.
  absl::StatusOr<v1::DeleteContextResponse> Delete(const std::string& reference,
                                                   std::vector<Digest>* gone,
                                                   const CancelledFn& cancelled);

  // "none", "ok", "unavailable: ...", "mismatch: ...".
  std::string ServerState();
  ServerClient* server() const { return server_; }
  const Catalogue& catalogue() const { return *catalogue_; }
  const ProfileStore& profiles() const { return *profiles_; }

 private:
  struct CodecChoice {
    std::string name;
    Digest digest{};       // CodecDigest
    std::string degraded;  // why it is not the one that was wanted
  };
  absl::Status CheckModel(const CatalogueEntry& entry) const;
  // Why a manifest cannot be used for this entry; empty: it can.
  std::string Mismatch(const CatalogueEntry& entry, const Manifest& manifest) const;
  // Takes the manifest and its profile, or says in `degraded` why not.
  void UseManifest(Manifest manifest, const CancelledFn& cancelled, ResolvedContext* context);
  absl::StatusOr<CodecChoice> ChooseCodec(const v1::AddContextRequest& request,
                                          const std::vector<int32_t>& tokens,
                                          const CancelledFn& cancelled);
  absl::StatusOr<CodecChoice> ChooseProfile(const CodecInfo& codec, bool named,
                                            const absl::StatusOr<v1::ServerInfo>& server,
                                            const CancelledFn& cancelled);
  absl::StatusOr<ResolvedContext> ResolveOnServer(const std::string& reference,
                                                  const CancelledFn& cancelled);

  const std::shared_ptr<const Model> model_;
  const std::unique_ptr<Catalogue> catalogue_;
  ServerClient* const server_;
  ProfileStore* const profiles_;
  const ContextsOptions options_;
};

}  // namespace sparkv
