// A declarative table of settings, filled from flags, environment and a TOML file.
//
//   Precedence, one rule everywhere:  flag > environment > file > default
//
// A setting `disk.budget` is the flag --disk-budget, the variable PREFIX_DISK_BUDGET and the key
// `budget` in the file's table [disk]. An unknown flag, an unknown PREFIX_ variable and an unknown
// key in the file are errors that name the nearest known one. Every value is checked by type and
// range wherever it came from, and the message says which source gave it.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace sparkv {

enum class SettingType {
  kString,
  kStrings,   // any number: the flag may be repeated, the variable separates them by ':', the file
              // has an array (or one string); none may be empty
  kInt,       // signed decimal
  kBytes,     // 4096, 64KiB, 10GiB, 1.5MB; a bare number is bytes
  kDouble,    // finite
  kBool,      // true/false, yes/no, on/off, 1/0; as a flag also without a value
  kDuration,  // 300ms, 1.5s, 2m (absl::ParseDuration), or 0
};

struct Setting {
  std::string key;  // lower case words joined by '_', tables by '.'
  SettingType type = SettingType::kString;
  std::string default_value;  // in the form of the command line; must pass the checks below unless
                              // empty; kStrings: a line each
  std::string help;           // one sentence, with the unit and the meaning of 0 or empty
  // kInt, kBytes, kDouble; kDuration in seconds. Inclusive.
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  // kString: the allowed values, and nothing where that is the default; empty: any
  std::vector<std::string> choices = {};
  bool required = false;  // must not end up empty
};

enum class SettingSource { kDefault, kFile, kEnvironment, kFlag };

// "10GiB" -> 10737418240. Units B, kB, MB, GB, TB, KiB, MiB, GiB, TiB in any case ("K", "M", "G",
// "T" mean KiB ...). InvalidArgument for anything else, negative values and more than 2^63 - 1.
absl::StatusOr<uint64_t> ParseBytes(std::string_view text);
// The shortest exact form with a binary unit: 10737418240 -> "10GiB".
std::string FormatBytes(uint64_t bytes);

// The member of `known` with the smallest edit distance; empty when none is near.
std::string NearestWord(std::string_view word, const std::vector<std::string>& known);

// Thread-compatible; typically filled once in main and then read.
class Settings {
 public:
  // `table` is checked: a bad default or a repeated key is Internal (a fault of ours).
  static absl::StatusOr<Settings> Create(std::vector<Setting> table, std::string env_prefix);

  // What a command line asked for.
  struct CommandLine {
    bool print_config = false;
    bool version = false;
    bool help = false;
    std::string config_file;             // --config or PREFIX_CONFIG; empty: none
    std::vector<std::string> arguments;  // what is not a flag
  };

  // Parses flags (--key value, --key=value, -- ends them, --config FILE, --print-config, --version,
  // --help), then the environment, then the file. With --help or --version nothing else is read or
  // checked. At most `max_arguments` positional words are taken. Environment is `environ` unless
  // given (tests).
  absl::StatusOr<CommandLine> Load(const std::vector<std::string>& args, size_t max_arguments = 0,
                                   const char* const* environment = nullptr);

  // The single sources, for tools with their own command line (CLI11's sub-commands). Each keeps
  // what a stronger source has set already, so the order of calls does not matter.
  absl::Status SetFromFlag(std::string_view key, std::string_view value);
  absl::Status LoadEnvironment(const char* const* environment = nullptr);
  absl::Status LoadFile(const std::string& path);  // NotFound, InvalidArgument "file:line: ..."
  absl::Status LoadToml(std::string_view text, const std::string& name);
  // Missing required settings: InvalidArgument naming flag, variable and key.
  absl::Status CheckRequired() const;

  // Values. The key must be in the table and of that type (a fault of ours otherwise: aborts with
  // the key's name).
  const std::string& GetString(std::string_view key) const;
  const std::vector<std::string>& GetStrings(std::string_view key) const;
  int64_t GetInt(std::string_view key) const;
  uint64_t GetBytes(std::string_view key) const;
  double GetDouble(std::string_view key) const;
  bool GetBool(std::string_view key) const;
  absl::Duration GetDuration(std::string_view key) const;
  SettingSource Source(std::string_view key) const;

  const std::vector<Setting>& table() const { return table_; }
  // The whole configuration as a TOML file that Load accepts, each value with its help and source.
  std::string Print() const;
  // The text of --help.
  std::string Help(std::string_view program, std::string_view summary,
                   std::string_view tail = "") const;
  std::string FlagName(std::string_view key) const;      // --disk-budget
  std::string VariableName(std::string_view key) const;  // PREFIX_DISK_BUDGET

 private:
  struct Value {
    std::string text;  // kStrings: a line each
    std::vector<std::string> list;
    SettingSource source = SettingSource::kDefault;
    int64_t integer = 0;
    double real = 0;
    bool boolean = false;
    absl::Duration duration;
  };
  Settings(std::vector<Setting> table, std::string env_prefix)
      : table_(std::move(table)), env_prefix_(std::move(env_prefix)) {}
  const Setting* Find(std::string_view key) const;
  std::vector<std::string> Keys() const;
  absl::StatusOr<Value> Parse(const Setting& setting, std::string_view text,
                              std::string_view origin) const;
  absl::Status Set(const Setting& setting, std::string_view text, SettingSource source,
                   std::string_view origin);
  const Value& Get(std::string_view key, SettingType type) const;

  std::vector<Setting> table_;
  std::string env_prefix_;
  std::map<std::string, Value, std::less<>> values_;
};

}  // namespace sparkv
