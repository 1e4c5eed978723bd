#include "common/codec/enc_codec.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/codec/enc_cachegen.h"
#include "common/codec/enc_f16.h"
#include "common/codec/enc_generic.h"
#include "common/codec/enc_kivi.h"
#include "common/codec/enc_paper.h"

namespace sparkv {
namespace {

class BlockwiseEncoder final : public ColumnEncoder {
 public:
  explicit BlockwiseEncoder(const BlockEncoder* encoder) : encoder_(encoder) {}
  const CodecInfo& info() const override { return encoder_->info(); }
  Digest digest() const override { return CodecDigest(info()); }
  absl::StatusOr<EncodedColumn> EncodeColumn(const ColumnInput& in,
                                             ThreadPool* pool) const override {
    const size_t layers = in.k.size();
    std::vector<absl::StatusOr<std::vector<std::string>>> blocks(layers, absl::CancelledError(""));
    ParallelFor(pool, layers, 1, [&](size_t begin, size_t end) {
      for (size_t l = begin; l < end; ++l) {
        blocks[l] = encoder_->EncodeBlock(
            {.shape = in.shape,
             .place = {static_cast<uint32_t>(l), static_cast<uint32_t>(layers)},
             .k = in.k[l],
             .v = in.v[l]});
      }
    });
    EncodedColumn column;
    for (size_t l = 0; l < layers; ++l) {
      if (!blocks[l].ok()) {
        return absl::Status(blocks[l].status().code(),
                            absl::StrCat("layer ", l, ": ", blocks[l].status().message()));
      }
      column.planes.push_back(*std::move(blocks[l]));
    }
    return column;
  }

 private:
  const BlockEncoder* encoder_;
};

}  // namespace

std::unique_ptr<ColumnEncoder> MakeColumnEncoder(const BlockEncoder* encoder) {
  return std::make_unique<BlockwiseEncoder>(encoder);
}

absl::StatusOr<const BlockEncoder*> FindEncoder(std::string_view name) {
  for (const BlockEncoder* e :
       {GenericEncoder(), F16Encoder(), PaperEncoder(), CachegenEncoder(), KiviEncoder()}) {
    if (e->info().name == name) return e;
  }
  return absl::FailedPreconditionError(
      absl::StrCat("codec \"", std::string(name),
                   "\" is not supported; supported: ", absl::StrJoin(CodecNames(), ", ")));
}

}  // namespace sparkv
