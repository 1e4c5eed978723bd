// What every example configuration in deploy/config must hold.
#pragma once

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "common/config/settings.h"
#include "tests/catch.h"

namespace sparkv::testing {

// Each setting of the table stands in the file once, set or commented out, below its own table's
// header; what is commented out shows the default.
inline void CheckExampleConfig(const std::vector<Setting>& settings, const std::string& path) {
  std::ifstream file(path);
  REQUIRE(file.good());
  std::string section, line, toml;
  while (std::getline(file, line)) {
    if (!line.empty() && line[0] == '[') section = line.substr(1, line.find(']') - 1) + ".";
    std::string text = line.rfind("# ", 0) == 0 ? line.substr(2) : line;
    const size_t equals = text.find(" = ");
    if (equals == std::string::npos || text.find_first_of(" .") < equals) continue;
    const std::string key = section + text.substr(0, equals);
    toml += key + text.substr(equals) + "\n";
    if (line[0] != '#') continue;
    std::string value = text.substr(equals + 3);
    if (value.front() == '"') value = value.substr(1, value.size() - 2);
    if (value == "0.0") value = "0";
    if (value == "[]") value = "";
    for (const Setting& setting : settings) {
      INFO(key << " in " << path);
      if (setting.key == key) CHECK(value == setting.default_value);
    }
  }
  for (const Setting& setting : settings) {
    INFO(setting.key << " in " << path);
    const size_t at = ("\n" + toml).find("\n" + setting.key + " = ");
    REQUIRE(at != std::string::npos);
    CHECK(toml.find("\n" + setting.key + " = ", at) == std::string::npos);
  }
}

}  // namespace sparkv::testing
