#include "common/gguf/gguf_summary.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace sparkv {
namespace {

constexpr size_t kShownBytes = 100;

std::string ShowValue(const GgufValue& value) {
  if (const auto text = value.AsString(); text.ok()) {
    const std::string shown = absl::CHexEscape(absl::string_view(text->data(), std::min(text->size(), kShownBytes)));
    return absl::StrCat("\"", shown, text->size() > kShownBytes ? "...\"" : "\"");
  }
  if (const auto flag = value.AsBool(); flag.ok()) return *flag ? "true" : "false";
  if (const auto integer = value.AsInt(); integer.ok()) return absl::StrCat(*integer);
  if (const auto number = value.AsDouble(); number.ok()) return absl::StrFormat("%g", *number);
  return value.TypeName();
}

}  // namespace

std::string GgufSummary(const GgufReader& reader) {
  std::string out = absl::StrFormat("GGUF version %u, %u keys, %u tensors, %u bytes\n", reader.version(),
                                    reader.metadata().size(), reader.tensors().size(), reader.bytes().size());
  for (const auto& [key, value] : reader.metadata()) {
    absl::StrAppend(&out, "  ", absl::CHexEscape(absl::string_view(key.data(), key.size())), " = ",
                    ShowValue(value), "\n");
  }
  for (const GgufTensor& tensor : reader.tensors()) {
    std::string shape;
    for (uint32_t i = 0; i < tensor.n_dims; ++i) absl::StrAppend(&shape, i > 0 ? " x " : "", tensor.dims[i]);
    absl::StrAppendFormat(&out, "  %-40s %-6s %s\n",
                          absl::CHexEscape(absl::string_view(tensor.name.data(), tensor.name.size())),
                          kernels::FindGgmlType(static_cast<uint32_t>(tensor.type))->name, shape);
  }
  return out;
}

}  // namespace sparkv
