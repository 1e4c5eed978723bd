// The calls around the kernels; what these do: rans_decode_test.cc, rans_thirds_test.cc.
#include "kernels/rans_cuda.h"

#include "tests/catch.h"
#include "tests/kernels/cuda_target.h"

namespace sparkv::kernels {

TEST_CASE("CUDA calls refuse null pointers and too many streams") {
  const RansCudaStream rans;
  const ThirdsCudaStream thirds;
  uint8_t ok = 0;
  for (const absl::Status& status :
       {RansDecodeCuda(nullptr, 1, &ok, nullptr), RansDecodeCuda(&rans, 1, nullptr, nullptr),
        RansDecodeCuda(&rans, kMaxCudaStreams + 1, &ok, nullptr),
        RansThirdsCuda(nullptr, 1, &ok, nullptr), RansThirdsCuda(&thirds, 1, nullptr, nullptr),
        RansThirdsCuda(&thirds, kMaxCudaStreams + 1, &ok, nullptr)}) {
    CAPTURE(status.ToString());
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  }
}

TEST_CASE(
    "CUDA calls for no streams do nothing where there are kernels, and say so where there are "
    "none") {
#ifdef SPARKV_HAS_CUDA
  REQUIRE_OK(RansDecodeCuda(nullptr, 0, nullptr, nullptr));
  REQUIRE_OK(RansThirdsCuda(nullptr, 0, nullptr, nullptr));
#else
  CHECK(RansDecodeCuda(nullptr, 0, nullptr, nullptr).code() == absl::StatusCode::kUnimplemented);
  CHECK(RansThirdsCuda(nullptr, 0, nullptr, nullptr).code() == absl::StatusCode::kUnimplemented);
  const RansCudaStream rans;
  const ThirdsCudaStream thirds;
  uint8_t ok = 7;
  CHECK(RansDecodeCuda(&rans, 1, &ok, nullptr).code() == absl::StatusCode::kUnimplemented);
  CHECK(RansThirdsCuda(&thirds, 1, &ok, nullptr).code() == absl::StatusCode::kUnimplemented);
  CHECK(ok == 7);
#endif
}

#ifdef SPARKV_HAS_CUDA
TEST_CASE("without a GPU a launch is an error") {
  std::string why_not;
  if (testing::GpuTarget(&why_not) != nullptr) SKIP("there is a GPU");
  const RansCudaStream rans;
  uint8_t ok = 7;
  CHECK(RansDecodeCuda(&rans, 1, &ok, nullptr).code() == absl::StatusCode::kInternal);
  CHECK(ok == 7);
}
#endif

}  // namespace sparkv::kernels
