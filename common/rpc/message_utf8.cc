#include "common/rpc/message_utf8.h"

#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/base/utf8.h"

namespace sparkv {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

int Count(const Message& message, const FieldDescriptor* field) {
  return field->is_repeated() ? message.GetReflection()->FieldSize(message, field) : 1;
}

std::vector<const FieldDescriptor*> Fields(const Message& message) {
  std::vector<const FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  return fields;
}

}  // namespace

absl::Status CheckUtf8(const Message& message) {
  const Reflection* reflection = message.GetReflection();
  std::string scratch;
  for (const FieldDescriptor* field : Fields(message)) {
    const bool list = field->is_repeated();
    for (int i = 0; i < Count(message, field); ++i) {
      if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
        RETURN_IF_ERROR(CheckUtf8(list ? reflection->GetRepeatedMessage(message, field, i)
                                       : reflection->GetMessage(message, field)));
      } else if (field->type() == FieldDescriptor::TYPE_STRING) {
        const std::string& value =
            list ? reflection->GetRepeatedStringReference(message, field, i, &scratch)
                 : reflection->GetStringReference(message, field, &scratch);
        RETURN_IF_ERROR(CheckUtf8(value, field->name()));
      }
    }
  }
  return absl::OkStatus();
}

void MakeUtf8Valid(Message* message) {
  if (CheckUtf8(*message).ok()) return;
  const Reflection* reflection = message->GetReflection();
  for (const FieldDescriptor* field : Fields(*message)) {
    const bool list = field->is_repeated();
    for (int i = 0; i < Count(*message, field); ++i) {
      if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
        MakeUtf8Valid(list ? reflection->MutableRepeatedMessage(message, field, i)
                           : reflection->MutableMessage(message, field));
      } else if (field->type() == FieldDescriptor::TYPE_STRING && list) {
        reflection->SetRepeatedString(
            message, field, i, ToValidUtf8(reflection->GetRepeatedString(*message, field, i)));
      } else if (field->type() == FieldDescriptor::TYPE_STRING) {
        reflection->SetString(message, field, ToValidUtf8(reflection->GetString(*message, field)));
      }
    }
  }
}

}  // namespace sparkv
