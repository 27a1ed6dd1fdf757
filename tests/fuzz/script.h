// Inputs that are messages in text format. The text is used as far as it parses.
#pragma once

#include "absl/strings/string_view.h"
#include "google/protobuf/io/tokenizer.h"
#include "google/protobuf/text_format.h"
#include "script.pb.h"
#include "tests/fuzz/fuzz.h"

namespace cairn::fuzz {

template <typename Message>
Message ParseText(const uint8_t* data, size_t size) {
  class Silence final : public google::protobuf::io::ErrorCollector {
   public:
    void AddError(int, google::protobuf::io::ColumnNumber, const std::string&) override {}
  } silence;
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&silence);
  parser.AllowPartialMessage(true);
  parser.SetRecursionLimit(32);
  Message message;
  // After a syntax error, the fields before it are set.
  static_cast<void>(parser.MergeFromString(std::string(TextOf(data, size)), &message));
  return message;
}

}  // namespace cairn::fuzz
