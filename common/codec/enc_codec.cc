#include "common/codec/enc_codec.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/codec/enc_cachegen.h"
#include "common/codec/enc_f16.h"
#include "common/codec/enc_generic.h"
#include "common/codec/enc_kivi.h"
#include "common/codec/enc_paper.h"

namespace sparkv {

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
