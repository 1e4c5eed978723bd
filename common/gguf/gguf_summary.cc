#include "common/gguf/gguf_summary.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace sparkv {
namespace {

constexpr size_t kShownBytes = 100;
constexpr size_t kShownElements = 6;

std::string Escaped(std::string_view text) {
  const std::string shown =
      absl::CHexEscape(absl::string_view(text.data(), std::min(text.size(), kShownBytes)));
  return text.size() > kShownBytes ? shown + "..." : shown;
}

// "[a, b, ...]" with show(element) for the first elements.
template <typename T, typename Show>
std::string ShowSome(const std::vector<T>& elements, const Show& show) {
  std::string out = "[";
  for (size_t i = 0; i < std::min(elements.size(), kShownElements); ++i) {
    absl::StrAppend(&out, i > 0 ? ", " : "", show(elements[i]));
  }
  return out + (elements.size() > kShownElements ? ", ...]" : "]");
}

std::string ShowArray(const GgufValue& value) {
  const auto number = [](double v) { return absl::StrFormat("%g", v); };
  const auto text = [](std::string_view v) { return absl::StrCat("\"", Escaped(v), "\""); };
  std::string shown;
  if (const auto strings = value.AsStrings(); strings.ok()) {
    shown = ShowSome(*strings, text);
  } else if (const auto integers = value.AsInts(); integers.ok()) {
    shown = ShowSome(*integers, [](int64_t v) { return absl::StrCat(v); });
  } else if (const auto numbers = value.AsDoubles(); numbers.ok()) {
    shown = ShowSome(*numbers, number);
  }
  return absl::StrCat(value.TypeName(), shown.empty() ? "" : " ", shown);
}

std::string ShowValue(const GgufValue& value) {
  if (value.type() == GgufType::kArray) return ShowArray(value);
  if (const auto text = value.AsString(); text.ok())
    return absl::StrCat("\"", Escaped(*text), "\"");
  if (const auto flag = value.AsBool(); flag.ok()) return *flag ? "true" : "false";
  if (const auto integer = value.AsInt(); integer.ok()) return absl::StrCat(*integer);
  if (const auto integer = value.AsUint(); integer.ok()) return absl::StrCat(*integer);
  if (const auto number = value.AsDouble(); number.ok()) return absl::StrFormat("%g", *number);
  return value.TypeName();
}

}  // namespace

std::string GgufSummary(const GgufReader& reader) {
  std::string out =
      absl::StrFormat("GGUF version %u, %u keys, %u tensors, %u bytes\n", reader.version(),
                      reader.metadata().size(), reader.tensors().size(), reader.bytes().size());
  for (const auto& [key, value] : reader.metadata()) {
    absl::StrAppend(&out, "  ", Escaped(key), " = ", ShowValue(value), "\n");
  }
  for (const GgufTensor& tensor : reader.tensors()) {
    std::string shape;
    for (uint32_t i = 0; i < tensor.n_dims; ++i)
      absl::StrAppend(&shape, i > 0 ? " x " : "", tensor.dims[i]);
    const kernels::GgmlTypeInfo& info = *kernels::FindGgmlType(static_cast<uint32_t>(tensor.type));
    absl::StrAppendFormat(&out, "  %-40s %-5s %-20s %12u bytes at %u\n", Escaped(tensor.name),
                          info.name, shape, tensor.data.size(), tensor.offset);
  }
  return out;
}

}  // namespace sparkv
