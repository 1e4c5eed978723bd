#include "common/rpc/message_utf8.h"

#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/base/status.h"
#include "common/base/utf8.h"

namespace sparkv {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// Calls `visit` for each string field that is set; a value that it returns replaces the field's.
using Visit = std::function<std::optional<std::string>(const FieldDescriptor&, const std::string&)>;

void ForStrings(Message* message, const Visit& visit) {
  const Reflection* reflection = message->GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection->ListFields(*message, &fields);
  for (const FieldDescriptor* field : fields) {
    const int n = field->is_repeated() ? reflection->FieldSize(*message, field) : 1;
    for (int i = 0; i < n; ++i) {
      if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
        ForStrings(field->is_repeated() ? reflection->MutableRepeatedMessage(message, field, i)
                                        : reflection->MutableMessage(message, field),
                   visit);
      } else if (field->type() == FieldDescriptor::TYPE_STRING) {
        std::optional<std::string> value = visit(*field, field->is_repeated()
                                                             ? reflection->GetRepeatedString(*message, field, i)
                                                             : reflection->GetString(*message, field));
        if (!value) continue;
        if (field->is_repeated()) {
          reflection->SetRepeatedString(message, field, i, *std::move(value));
        } else {
          reflection->SetString(message, field, *std::move(value));
        }
      }
    }
  }
}

}  // namespace

absl::Status CheckUtf8(const Message& message) {
  absl::Status status;
  // Nothing is replaced, so the message stays as it is.
  ForStrings(const_cast<Message*>(&message), [&status](const FieldDescriptor& field, const std::string& value) {
    const std::optional<size_t> at = FindInvalidUtf8(value);
    if (at && status.ok()) {
      status = absl::InvalidArgumentError(absl::StrFormat("%s is not UTF-8: byte 0x%02X at offset %d", field.name(),
                                                          static_cast<uint8_t>(value[*at]), *at));
    }
    return std::nullopt;
  });
  return status;
}

void MakeUtf8Valid(Message* message) {
  ForStrings(message, [](const FieldDescriptor&, const std::string& value) {
    return FindInvalidUtf8(value) ? std::optional<std::string>(ToValidUtf8(value)) : std::nullopt;
  });
}

}  // namespace sparkv
