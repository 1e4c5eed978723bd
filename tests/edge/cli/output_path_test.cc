#include "edge/cli/output_path.h"

#include <filesystem>
#include <fstream>

#include "tests/catch.h"
#include "tests/testing/temp_folder.h"

namespace sparkv::cli {

TEST_CASE(
    "An output is refused before the work when it can't be a file or would overwrite another") {
  testing::TempFolder folder;
  const std::string model = folder.Path("model.gguf"), link = folder.Path("link.gguf");
  std::ofstream(model) << "model";
  std::filesystem::create_symlink(model, link);
  const auto refused = [&](const std::string& path, const std::vector<std::string>& others = {}) {
    const absl::Status status = CheckOutputPath("--out", path, others);
    CHECK(absl::IsInvalidArgument(status));
    return std::string(status.message());
  };
  CHECK(refused("") == "--out: the name is empty");
  CHECK(refused(folder.path()).find("is a folder") != std::string::npos);
  CHECK(refused(folder.Path("none/x.skvp")).find("does not exist") != std::string::npos);
  CHECK(refused(folder.Path("model.gguf/x")).find("does not exist") != std::string::npos);
  CHECK(refused(model, {folder.Path("text"), model}).find("would overwrite") != std::string::npos);
  CHECK(refused(link, {model}).find("would overwrite") != std::string::npos);
  // A name for what does not exist yet, written in two ways.
  CHECK(refused(folder.Path("x.skvp"), {folder.path() + "/./x.skvp"}).find("would overwrite") !=
        std::string::npos);
  CHECK(CheckOutputPath("--out", folder.Path("x.skvp"), {model}).ok());
  CHECK(CheckOutputPath("--out", folder.Path("x.skvp"), {}).ok());
  CHECK(CheckOutputPath("--out", model, {link + "2"}).ok());  // an older output
  CHECK(CheckOutputPath("--out", "x.skvp", {}).ok());
}

}  // namespace sparkv::cli
