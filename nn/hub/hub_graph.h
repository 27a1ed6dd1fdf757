// Writes the JSON of a Functional model: the layers of which a composite layer or a backbone of keras_hub consists.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace cairn::nn {

class HubGraph {
 public:
  // Adds an input of `axes` axes, the batch included, whose sizes are open, and returns its name.
  std::string Input(const std::string& name, int axes, const char* dtype = "float32");
  // Adds a layer and a call of it on `inputs`, the arguments `kwargs` included, and returns its name.
  std::string Add(const char* class_name, const std::string& name, nlohmann::json config,
                  std::vector<std::string> inputs, nlohmann::json kwargs = nlohmann::json::object());
  // Sets the shape that the last layer has been built for.
  void SetBuildShape(const nlohmann::json& shape);
  // Adds `layer`, which has a class and a config with its name.
  std::string AddRead(nlohmann::json layer, nlohmann::json args);

  // The config of the model. An output is a layer, or [layer, call, output].
  nlohmann::json Config(const std::string& name, std::vector<nlohmann::json> outputs) const;

 private:
  nlohmann::json layers_ = nlohmann::json::array(), inputs_ = nlohmann::json::array();
};

}  // namespace cairn::nn
