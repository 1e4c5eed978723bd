#include "common/config/settings.h"

#define TOML_EXCEPTIONS 0
#include <toml++/toml.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <type_traits>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "common/base/file.h"
#include "common/base/status.h"

namespace sparkv {
namespace {

// Abseil's string_view is the standard's in some builds and another type in others.
absl::string_view Piece(std::string_view s) { return {s.data(), s.size()}; }
template <typename T>
const T& Piece(const T& value) requires(!std::is_convertible_v<const T&, std::string_view>) {
  return value;
}
template <typename... T>
std::string Cat(const T&... pieces) {
  return absl::StrCat(Piece(pieces)...);
}

constexpr uint64_t kMaxConfigFileBytes = 1 << 20;

std::string_view TypeName(SettingType type) {
  switch (type) {
    case SettingType::kString:
      return "text";
    case SettingType::kStrings:
      return "a list of texts";
    case SettingType::kInt:
      return "an integer";
    case SettingType::kBytes:
      return "a size such as 4096, 64KiB or 10GiB";
    case SettingType::kDouble:
      return "a number";
    case SettingType::kBool:
      return "true or false";
    case SettingType::kDuration:
      return "a duration such as 300ms, 1.5s or 2m";
  }
  return "?";
}

std::string_view SourceName(SettingSource source) {
  switch (source) {
    case SettingSource::kDefault:
      return "default";
    case SettingSource::kFile:
      return "file";
    case SettingSource::kEnvironment:
      return "environment";
    case SettingSource::kFlag:
      return "flag";
  }
  return "?";
}

std::string Number(double v) {
  return v == std::floor(v) && std::abs(v) < 1e15 ? Cat(static_cast<int64_t>(v)) : Cat(v);
}

// "allowed: 1..64", "allowed: at least 1", or "" without a limit.
std::string RangeText(const Setting& s) {
  const auto text = [&s](double v) {
    return s.type == SettingType::kBytes ? FormatBytes(static_cast<uint64_t>(v)) : Number(v);
  };
  const std::string unit = s.type == SettingType::kDuration ? " seconds" : "";
  if (std::isfinite(s.min) && std::isfinite(s.max)) {
    return Cat("allowed: ", text(s.min), "..", text(s.max), unit);
  }
  if (std::isfinite(s.min)) return Cat("allowed: at least ", text(s.min), unit);
  if (std::isfinite(s.max)) return Cat("allowed: at most ", text(s.max), unit);
  return "";
}

size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])});
      diagonal = above;
    }
  }
  return row[b.size()];
}

std::string Suggestion(std::string_view word, const std::vector<std::string>& known) {
  const std::string nearest = NearestWord(word, known);
  return nearest.empty() ? Cat("; known: ", absl::StrJoin(known, ", "))
                         : Cat("; did you mean '", nearest, "'?");
}

std::string TomlString(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      char escaped[8];
      std::snprintf(escaped, sizeof(escaped), "\\u%04x", c);
      out += escaped;
    } else {
      out += c;
    }
  }
  return out + "\"";
}

// Calls fn(dotted key, node) for each value below `table`; fn returns a Status.
template <typename Fn>
absl::Status ForEachLeaf(const toml::table& table, const std::string& prefix, const Fn& fn) {
  for (const auto& [key, node] : table) {
    const std::string path = Cat(prefix, std::string_view(key.str()));
    if (const toml::table* inner = node.as_table()) {
      RETURN_IF_ERROR(ForEachLeaf(*inner, path + ".", fn));
    } else {
      RETURN_IF_ERROR(fn(path, node));
    }
  }
  return absl::OkStatus();
}

// The command-line form of a TOML value of the right kind for `type`; nothing otherwise.
std::optional<std::string> TomlText(const toml::node& node, SettingType type) {
  const auto text = node.value_exact<std::string>();
  const auto integer = node.value_exact<int64_t>();
  const auto real = node.value_exact<double>();
  const auto boolean = node.value_exact<bool>();
  switch (type) {
    case SettingType::kString:
      return text;
    case SettingType::kStrings: {
      if (text || !node.is_array()) return text;
      std::vector<std::string> lines;
      for (const toml::node& element : *node.as_array()) {
        const auto line = element.value_exact<std::string>();
        if (!line) return std::nullopt;
        lines.push_back(*line);
      }
      return absl::StrJoin(lines, "\n");
    }
    case SettingType::kInt:
      if (integer) return Cat(*integer);
      return std::nullopt;
    case SettingType::kBytes:
      if (text) return text;
      if (integer) return Cat(*integer);
      return std::nullopt;
    case SettingType::kDouble:
      if (integer) return Cat(*integer);
      if (real) {
        char buffer[40];
        std::snprintf(buffer, sizeof(buffer), "%.17g", *real);
        return buffer;
      }
      return std::nullopt;
    case SettingType::kBool:
      if (boolean) return *boolean ? "true" : "false";
      return std::nullopt;
    case SettingType::kDuration:
      if (text) return text;
      if (integer && *integer == 0) return "0";
      return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace

absl::StatusOr<uint64_t> ParseBytes(std::string_view text) {
  const absl::Status bad = absl::InvalidArgumentError(
      Cat("'", text, "' is not a size; give bytes or a unit, for instance 4096, 64KiB, 10GiB"));
  const std::string trimmed(absl::StripAsciiWhitespace(Piece(text)));
  size_t digits = 0;
  while (digits < trimmed.size() &&
         (absl::ascii_isdigit(trimmed[digits]) || trimmed[digits] == '.'))
    ++digits;
  if (digits == 0) return bad;
  const std::string number = trimmed.substr(0, digits);
  const std::string unit =
      absl::AsciiStrToLower(absl::StripAsciiWhitespace(trimmed.substr(digits)));
  static const std::map<std::string, uint64_t> kUnits = {{"", 1},
                                                         {"b", 1},
                                                         {"k", 1ull << 10},
                                                         {"kib", 1ull << 10},
                                                         {"kb", 1000ull},
                                                         {"m", 1ull << 20},
                                                         {"mib", 1ull << 20},
                                                         {"mb", 1000ull * 1000},
                                                         {"g", 1ull << 30},
                                                         {"gib", 1ull << 30},
                                                         {"gb", 1000ull * 1000 * 1000},
                                                         {"t", 1ull << 40},
                                                         {"tib", 1ull << 40},
                                                         {"tb", 1000ull * 1000 * 1000 * 1000}};
  const auto it = kUnits.find(unit);
  if (it == kUnits.end()) return bad;
  uint64_t value = 0;
  if (absl::SimpleAtoi(Piece(number), &value)) {
    uint64_t product = 0;
    if (__builtin_mul_overflow(value, it->second, &product) ||
        product > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return absl::InvalidArgumentError(Cat("'", text, "' is more than 2^63 - 1 bytes"));
    }
    return product;
  }
  double real = 0;
  if (!absl::SimpleAtod(Piece(number), &real) || it->second == 1) return bad;
  const double product = real * static_cast<double>(it->second);
  if (!(product >= 0 && product < 9.2e18)) return bad;
  return static_cast<uint64_t>(std::llround(product));
}

std::string FormatBytes(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"", "KiB", "MiB", "GiB", "TiB"};
  int unit = 0;
  while (unit < 4 && bytes != 0 && bytes % 1024 == 0) {
    bytes /= 1024;
    ++unit;
  }
  return Cat(bytes, kUnits[unit]);
}

std::string NearestWord(std::string_view word, const std::vector<std::string>& known) {
  std::string best;
  size_t best_distance = std::max<size_t>(2, word.size() / 3) + 1;
  if (word.size() > 256) return best;
  for (const std::string& k : known) {
    const size_t d = EditDistance(word, k);
    if (d < best_distance) {
      best_distance = d;
      best = k;
    }
  }
  return best;
}

std::string Settings::FlagName(std::string_view key) const {
  return Cat("--", absl::StrReplaceAll(Piece(key), {{".", "-"}, {"_", "-"}}));
}

std::string Settings::VariableName(std::string_view key) const {
  return Cat(env_prefix_, absl::AsciiStrToUpper(absl::StrReplaceAll(Piece(key), {{".", "_"}})));
}

absl::StatusOr<Settings> Settings::Create(std::vector<Setting> table, std::string env_prefix) {
  Settings settings(std::move(table), std::move(env_prefix));
  std::map<std::string, std::string> flags = {
      {"--config", ""}, {"--print-config", ""}, {"--version", ""}, {"--help", ""}};
  for (const Setting& s : settings.table_) {
    if (!flags.emplace(settings.FlagName(s.key), s.key).second) {
      return absl::InternalError(Cat("setting '", s.key, "' repeats a flag"));
    }
    Value value;
    if (!s.default_value.empty()) {
      absl::StatusOr<Value> parsed = settings.Parse(s, s.default_value, "default");
      if (!parsed.ok()) return absl::InternalError(parsed.status().message());
      value = *parsed;
    }
    value.source = SettingSource::kDefault;
    settings.values_[s.key] = std::move(value);
  }
  return settings;
}

const Setting* Settings::Find(std::string_view key) const {
  for (const Setting& s : table_) {
    if (s.key == key) return &s;
  }
  return nullptr;
}

std::vector<std::string> Settings::Keys() const {
  std::vector<std::string> keys;
  for (const Setting& s : table_) keys.push_back(s.key);
  return keys;
}

absl::StatusOr<Settings::Value> Settings::Parse(const Setting& s, std::string_view text,
                                                std::string_view origin) const {
  const auto error = [&](std::string_view why) {
    return absl::InvalidArgumentError(Cat(origin, ": ", s.key, " = '", text, "' ", why));
  };
  Value value;
  value.text = std::string(text);
  double magnitude = 0;
  const auto wrong_type = [&] { return error(Cat("is not ", TypeName(s.type))); };
  if (text.find('\0') != std::string_view::npos) return error("holds a NUL character");
  switch (s.type) {
    case SettingType::kString:
      if (text.empty() && s.default_value.empty()) return value;
      if (!s.choices.empty() &&
          std::find(s.choices.begin(), s.choices.end(), value.text) == s.choices.end()) {
        return error(Cat("is not known; allowed: ", absl::StrJoin(s.choices, ", ")));
      }
      return value;
    case SettingType::kStrings:
      if (text.empty()) return value;
      value.list = absl::StrSplit(Piece(text), '\n');
      for (const std::string& line : value.list) {
        if (line.empty()) return error("has an empty entry");
      }
      return value;
    case SettingType::kInt:
      if (!absl::SimpleAtoi(Piece(text), &value.integer)) return wrong_type();
      magnitude = static_cast<double>(value.integer);
      break;
    case SettingType::kBytes: {
      const absl::StatusOr<uint64_t> bytes = ParseBytes(text);
      if (!bytes.ok()) return wrong_type();
      value.integer = static_cast<int64_t>(*bytes);
      magnitude = static_cast<double>(*bytes);
      break;
    }
    case SettingType::kDouble:
      if (!absl::SimpleAtod(Piece(text), &value.real) || !std::isfinite(value.real))
        return wrong_type();
      magnitude = value.real;
      break;
    case SettingType::kBool: {
      if (!absl::SimpleAtob(Piece(text), &value.boolean)) {
        const std::string lower = absl::AsciiStrToLower(Piece(text));
        if (lower != "on" && lower != "off") return wrong_type();
        value.boolean = lower == "on";
      }
      value.text = value.boolean ? "true" : "false";
      return value;
    }
    case SettingType::kDuration:
      if (!absl::ParseDuration(std::string(text), &value.duration)) return wrong_type();
      magnitude = absl::ToDoubleSeconds(value.duration);
      break;
  }
  if (!(magnitude >= s.min && magnitude <= s.max)) {
    return error(Cat("is out of range; ", RangeText(s)));
  }
  return value;
}

absl::Status Settings::Set(const Setting& s, std::string_view text, SettingSource source,
                           std::string_view origin) {
  // A value is checked even where a stronger source hides it: a broken file must not work by luck.
  ASSIGN_OR_RETURN(Value value, Parse(s, text, origin));
  value.source = source;
  Value& current = values_[s.key];
  if (s.type == SettingType::kStrings && source == SettingSource::kFlag) {
    if (value.list.empty()) return absl::InvalidArgumentError(Cat(origin, ": is empty"));
    if (current.source == source) {  // a flag that is repeated
      current.text += "\n" + value.text;
      current.list.insert(current.list.end(), value.list.begin(), value.list.end());
      return absl::OkStatus();
    }
  }
  if (source >= current.source) current = std::move(value);
  return absl::OkStatus();
}

absl::Status Settings::SetFromFlag(std::string_view key, std::string_view value) {
  const Setting* s = Find(key);
  if (s == nullptr) {
    return absl::InvalidArgumentError(Cat("unknown setting '", key, "'", Suggestion(key, Keys())));
  }
  return Set(*s, value, SettingSource::kFlag, FlagName(s->key));
}

absl::Status Settings::LoadEnvironment(const char* const* environment) {
  const char* const* env = environment != nullptr ? environment : ::environ;
  std::vector<std::string> names = {Cat(env_prefix_, "CONFIG")};
  for (const Setting& s : table_) names.push_back(VariableName(s.key));
  for (; env != nullptr && *env != nullptr; ++env) {
    const std::string_view entry = *env;
    const size_t eq = entry.find('=');
    if (eq == std::string_view::npos || entry.substr(0, env_prefix_.size()) != env_prefix_)
      continue;
    const std::string_view name = entry.substr(0, eq);
    if (name == names[0]) continue;
    const auto it = std::find(names.begin() + 1, names.end(), name);
    if (it == names.end()) {
      return absl::InvalidArgumentError(
          Cat("unknown environment variable '", name, "'", Suggestion(name, names)));
    }
    const Setting& s = table_[static_cast<size_t>(it - names.begin()) - 1];
    std::string value(entry.substr(eq + 1));
    if (s.type == SettingType::kStrings) absl::StrReplaceAll({{":", "\n"}}, &value);
    RETURN_IF_ERROR(Set(s, value, SettingSource::kEnvironment, name));
  }
  return absl::OkStatus();
}

absl::Status Settings::LoadFile(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxConfigFileBytes));
  return LoadToml(text, path);
}

absl::Status Settings::LoadToml(std::string_view text, const std::string& name) {
  const toml::parse_result parsed = toml::parse(text, std::string_view(name));
  if (!parsed) {
    const toml::parse_error& e = parsed.error();
    return absl::InvalidArgumentError(
        Cat(name, ":", e.source().begin.line, ": ", std::string_view(e.description())));
  }
  return ForEachLeaf(
      parsed.table(), "", [&](const std::string& key, const toml::node& node) -> absl::Status {
        const std::string origin = Cat(name, ":", node.source().begin.line);
        const Setting* s = Find(key);
        if (s == nullptr) {
          return absl::InvalidArgumentError(
              Cat(origin, ": unknown key '", key, "'", Suggestion(key, Keys())));
        }
        const std::optional<std::string> value = TomlText(node, s->type);
        if (!value) {
          return absl::InvalidArgumentError(Cat(origin, ": ", key, " must be ", TypeName(s->type)));
        }
        return Set(*s, *value, SettingSource::kFile, origin);
      });
}

absl::Status Settings::CheckRequired() const {
  for (const Setting& s : table_) {
    if (s.required && values_.at(s.key).text.empty()) {
      return absl::InvalidArgumentError(Cat(s.key, " is not set; give ", FlagName(s.key), ", ",
                                            VariableName(s.key), " or the key in a --config file"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Settings::CommandLine> Settings::Load(const std::vector<std::string>& args,
                                                     size_t max_arguments,
                                                     const char* const* environment) {
  CommandLine line;
  std::vector<std::string> known = {"--config", "--print-config", "--version", "--help"};
  for (const Setting& s : table_) known.push_back(FlagName(s.key));
  std::vector<std::pair<const Setting*, std::string>> flags;
  bool only_arguments = false;
  for (size_t i = 0; i < args.size(); ++i) {
    const std::string& arg = args[i];
    if (only_arguments || arg.size() < 2 || arg[0] != '-') {
      if (line.arguments.size() == max_arguments) {
        return absl::InvalidArgumentError(
            Cat("unexpected argument '", arg, "'",
                max_arguments == 0 ? "; only --flags are taken" : ""));
      }
      line.arguments.push_back(arg);
      continue;
    }
    if (arg == "--") {
      only_arguments = true;
      continue;
    }
    const size_t eq = arg.find('=');
    const std::string name = arg == "-h" ? "--help" : arg.substr(0, eq);
    std::optional<std::string> value;
    if (eq != std::string::npos) value = arg.substr(eq + 1);
    const auto it = std::find(known.begin(), known.end(), name);
    if (it == known.end()) {
      return absl::InvalidArgumentError(Cat("unknown flag '", name, "'", Suggestion(name, known)));
    }
    const size_t index = static_cast<size_t>(it - known.begin());
    if (index >= 1 && index <= 3) {
      if (value) return absl::InvalidArgumentError(Cat(name, " takes no value"));
      (index == 1 ? line.print_config : index == 2 ? line.version : line.help) = true;
      continue;
    }
    const Setting* s = index == 0 ? nullptr : &table_[index - 4];
    if (!value && s != nullptr && s->type == SettingType::kBool) value = "true";
    if (!value) {
      if (i + 1 == args.size()) return absl::InvalidArgumentError(Cat(name, " needs a value"));
      value = args[++i];
    }
    if (s == nullptr) {
      line.config_file = *value;
    } else {
      flags.emplace_back(s, *value);
    }
  }
  if (line.help || line.version) return line;
  for (const auto& [s, value] : flags) RETURN_IF_ERROR(SetFromFlag(s->key, value));
  RETURN_IF_ERROR(LoadEnvironment(environment));
  if (line.config_file.empty()) {
    const std::string variable = Cat(env_prefix_, "CONFIG=");
    for (const char* const* env = environment != nullptr ? environment : ::environ;
         env != nullptr && *env != nullptr; ++env) {
      const std::string_view entry = *env;
      if (entry.substr(0, variable.size()) == variable)
        line.config_file = entry.substr(variable.size());
    }
  }
  if (!line.config_file.empty()) RETURN_IF_ERROR(LoadFile(line.config_file));
  if (!line.print_config) RETURN_IF_ERROR(CheckRequired());
  return line;
}

const Settings::Value& Settings::Get(std::string_view key, SettingType type) const {
  const Setting* s = Find(key);
  if (s == nullptr || s->type != type) {
    std::fprintf(stderr, "setting '%.*s' is not in the table with this type\n",
                 static_cast<int>(key.size()), key.data());
    std::abort();
  }
  return values_.find(key)->second;
}

const std::string& Settings::GetString(std::string_view key) const {
  return Get(key, SettingType::kString).text;
}
const std::vector<std::string>& Settings::GetStrings(std::string_view key) const {
  return Get(key, SettingType::kStrings).list;
}
int64_t Settings::GetInt(std::string_view key) const { return Get(key, SettingType::kInt).integer; }
uint64_t Settings::GetBytes(std::string_view key) const {
  return static_cast<uint64_t>(Get(key, SettingType::kBytes).integer);
}
double Settings::GetDouble(std::string_view key) const {
  return Get(key, SettingType::kDouble).real;
}
bool Settings::GetBool(std::string_view key) const { return Get(key, SettingType::kBool).boolean; }
absl::Duration Settings::GetDuration(std::string_view key) const {
  return Get(key, SettingType::kDuration).duration;
}

SettingSource Settings::Source(std::string_view key) const {
  const auto it = values_.find(key);
  return it == values_.end() ? SettingSource::kDefault : it->second.source;
}

std::string Settings::Print() const {
  // Plain keys first, then each table once: TOML has no way back to the top.
  std::vector<std::string> tables = {""};
  const auto table_of = [](const std::string& key) {
    const size_t dot = key.rfind('.');
    return dot == std::string::npos ? std::string() : key.substr(0, dot);
  };
  for (const Setting& s : table_) {
    const std::string table = table_of(s.key);
    if (std::find(tables.begin(), tables.end(), table) == tables.end()) tables.push_back(table);
  }
  std::string out;
  for (const std::string& table : tables) {
    if (!table.empty()) out += Cat("\n[", table, "]\n");
    for (const Setting& s : table_) {
      if (table_of(s.key) != table) continue;
      const Value& value = values_.at(s.key);
      out += Cat("# ", s.help);
      const std::string range = RangeText(s);
      if (!range.empty()) out += Cat(" (", range, ")");
      if (!s.choices.empty()) out += Cat(" (", absl::StrJoin(s.choices, ", "), ")");
      out += Cat(" [", SourceName(value.source), "]\n");
      const std::string name = table.empty() ? s.key : s.key.substr(table.size() + 1);
      const bool quoted = s.type == SettingType::kString || s.type == SettingType::kBytes ||
                          s.type == SettingType::kDuration;
      // An unset number has no TOML form; it stays a comment.
      const bool unset =
          value.text.empty() && s.type != SettingType::kString && s.type != SettingType::kStrings;
      std::string text = quoted ? TomlString(value.text) : value.text;
      if (s.type == SettingType::kStrings) {
        std::vector<std::string> entries;
        for (const std::string& entry : value.list) entries.push_back(TomlString(entry));
        text = Cat("[", absl::StrJoin(entries, ", "), "]");
      }
      out += Cat(unset ? "# " : "", name, " = ", text, "\n");
    }
  }
  return out;
}

std::string Settings::Help(std::string_view program, std::string_view summary,
                           std::string_view tail) const {
  std::string out = Cat(summary, "\n\nusage: ", program, " [--flag value]...\n\n");
  const auto line = [&out](std::string_view flag, std::string_view text) {
    out += Cat("  ", flag, std::string(flag.size() < 26 ? 26 - flag.size() : 1, ' '), text, "\n");
  };
  for (const Setting& s : table_) {
    std::string text = s.help;
    if (!s.choices.empty()) text += Cat(" (", absl::StrJoin(s.choices, ", "), ")");
    const std::string range = RangeText(s);
    if (!range.empty()) text += Cat(" (", range, ")");
    if (!s.default_value.empty()) text += Cat(" [", s.default_value, "]");
    line(FlagName(s.key), text);
  }
  line("--config FILE", Cat("TOML file with the same settings (", env_prefix_, "CONFIG)"));
  line("--print-config", "print the resulting configuration as TOML and exit");
  line("--version", "print version, commit, build and CPU features and exit");
  line("--help", "print this and exit");
  out += Cat("\nA value is taken from the flag, else from the environment");
  if (!table_.empty()) {
    out += Cat(" (", FlagName(table_[0].key), " is ", VariableName(table_[0].key), ")");
  }
  out += Cat(",\nelse from the file, else the default in brackets.\n", tail);
  return out;
}

}  // namespace sparkv
