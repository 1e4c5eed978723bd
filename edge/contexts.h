// The contexts that this daemon can answer about: its own catalogue, and what the server knows.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/cancel.h"
#include "common/codec/profile.h"
#include "common/kv/manifest.h"
#include "common/llm/model.h"
#include "edge/catalogue.h"
#include "edge/net/server_client.h"
#include "sparkv/v1/edge.pb.h"

namespace sparkv {

// A context that a request named.
struct ResolvedContext {
  CatalogueEntry entry;
  std::optional<Manifest>
      manifest;          // when the server has it and it fits this model, codec and these ids
  // Of the manifest's codec; null for codecs without one.
  std::shared_ptr<const CodecProfile> profile;
  std::string degraded;  // why there is no manifest although a server is configured
  bool recorded = true;  // in the catalogue
  double lookup_ms = 0;
};

// Thread-safe. `cancelled` ends what waits for the server: Cancelled.
class Contexts {
 public:
  // server: null when none is configured; must outlive this.
  Contexts(std::shared_ptr<const Model> model, std::unique_ptr<Catalogue> catalogue,
           ServerClient* server);

  // Finds a context here, else on the server (and records it). NotFound, InvalidArgument
  // (ambiguous), FailedPrecondition (it belongs to another model or is longer than the model
  // takes).
  absl::StatusOr<ResolvedContext> Resolve(const std::string& reference,
                                          const CancelledFn& cancelled);
  // Asks the server for the manifest. Never fails: `degraded` says why there is none. Without a
  // server: nothing.
  void LookUp(ResolvedContext* context, CancelledFn cancelled);
  // The codec level that a request for `level` means: 0 is `fallback`, and where that is 0 or no
  // level of the context's codec, the codec's default. InvalidArgument for any other level that the
  // codec lacks; 0 when the codec is unknown here, so that nothing can be streamed.
  absl::StatusOr<uint32_t> LevelFor(const CatalogueEntry& entry, uint32_t level,
                                    uint32_t fallback) const;

  // Tokenizes, records and, with a server, has it precomputed. `progress` gets messages without
  // `done`.
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

 private:
  absl::Status CheckModel(const CatalogueEntry& entry) const;
  // Why a manifest cannot be used for this entry; empty: it can.
  std::string Mismatch(const CatalogueEntry& entry, const Manifest& manifest) const;
  absl::StatusOr<ResolvedContext> ResolveOnServer(const std::string& reference,
                                                  const CancelledFn& cancelled);

  const std::shared_ptr<const Model> model_;
  const std::unique_ptr<Catalogue> catalogue_;
  ServerClient* const server_;
};

}  // namespace sparkv
