#include "tests/testing/paths.h"

#include <cstdlib>
#include <fstream>

namespace sparkv::testing {

std::string SourcePath(std::string_view relative) {
  return std::string(SPARKV_TEST_SOURCE_DIR "/").append(relative);
}

std::string BuiltProgram(std::string_view relative) {
  return std::string(SPARKV_TEST_BINARY_DIR "/").append(relative);
}

std::string TestModel() {
  const char* variable = std::getenv("SPARKV_TEST_MODEL");
  std::string path = variable != nullptr ? variable : SPARKV_TEST_MODEL_FILE;
  if (!path.empty() && !std::ifstream(path).good()) path.clear();
  return path;
}

std::string TestProfile() {
  const char* variable = std::getenv("SPARKV_TEST_PROFILE");
  std::string path = variable != nullptr
                         ? variable
                         : SourcePath("deploy/profiles/SmolLM2-135M-Instruct.Q4_1.skvp");
  if (!std::ifstream(path).good()) path.clear();
  return path;
}

}  // namespace sparkv::testing
