#include "nn/layer/keras_class.h"

#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace cairn::nn {
namespace {

// The member of an object if it is a string, otherwise empty.
std::string Text(const nlohmann::json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

bool IsKerasModule(absl::string_view module) {
  for (const char* root :
       {"keras", "keras_cv", "keras_hub", "keras_nlp", "keras_rs", "tf_keras", "tensorflow"}) {
    if (module == root || absl::StartsWith(module, absl::StrCat(root, "."))) return true;
  }
  return false;
}

}  // namespace

absl::Status CheckIsOfKeras(const nlohmann::json& object) {
  const bool function = Text(object, "class_name") == "function";  // its module is always "builtins"
  if (const std::string module = Text(object, "module");
      !module.empty() && !function && !IsKerasModule(module)) {
    return absl::InvalidArgumentError(
        absl::StrCat("is a custom class of module '", module,
                     "'; only Keras' own classes are supported: replace it by one"));
  }
  const std::string name = Text(object, "registered_name");
  const size_t package = name.find('>');
  // Keras 2 registered its own optimizers as "Custom>Adam".
  const bool registered_by_keras =
      package == std::string::npos || absl::StartsWith(name, "keras") || name == Text(object, "class_name");
  if (!registered_by_keras) {
    return absl::InvalidArgumentError(
        absl::StrCat("is a custom class, registered as '", name,
                     "'; only Keras' own classes are supported: replace it by one"));
  }
  return absl::OkStatus();
}

bool IsKerasFunction(const nlohmann::json& object) {
  return absl::StartsWith(Text(object, "module"), "keras.src.ops");
}

std::string SnakeCase(absl::string_view class_name) {
  std::string name;
  for (size_t i = 0; i < class_name.size(); ++i) {
    const char c = class_name[i];
    const bool starts_word = i > 0 && absl::ascii_isupper(c) &&
                             (absl::ascii_islower(class_name[i - 1]) ||
                              (i + 1 < class_name.size() && absl::ascii_islower(class_name[i + 1])));
    if (starts_word) name += '_';
    name += absl::ascii_tolower(c);
  }
  return name;
}

std::string GroupNames::Next(absl::string_view class_name) {
  std::string group = SnakeCase(class_name);
  if (const int number = count_[group]++; number > 0) absl::StrAppend(&group, "_", number);
  return group;
}

}  // namespace cairn::nn
