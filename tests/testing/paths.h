// Where tests find what they did not make themselves, from any working folder.
#pragma once

#include <string>
#include <string_view>

namespace sparkv::testing {

// A file of the repository, "tests/golden/…".
std::string SourcePath(std::string_view relative);
// A program of this build, "server/sparkv-server".
std::string BuiltProgram(std::string_view relative);
// SmolLM2-135M-Instruct.Q4_1.gguf: $SPARKV_TEST_MODEL, else the CMake variable of that name; empty
// when there is no such file, and the test is skipped.
std::string TestModel();
// Its codec profile: $SPARKV_TEST_PROFILE, else deploy/profiles/SmolLM2-135M-Instruct.Q4_1.skvp;
// empty when there is no such file.
std::string TestProfile();

}  // namespace sparkv::testing

// In a TEST_CASE: skips without the model.
#define SPARKV_NEED_MODEL() \
  if (::sparkv::testing::TestModel().empty()) SKIP("SPARKV_TEST_MODEL names no file")
#define SPARKV_NEED_PROFILE()                   \
  if (::sparkv::testing::TestProfile().empty()) \
  SKIP("deploy/profiles has no profile of the model, and SPARKV_TEST_PROFILE names no file")
