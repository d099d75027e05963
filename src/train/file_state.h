#pragma once

#include <gradus/core/json.h>

#include <string>

namespace gradus {

/// A callback whose state is a JSON file of its own in checkpoints, as another program reads it.
class FileState {
 public:
  virtual ~FileState() = default;
  /// The name of the file, which no other part of a checkpoint has.
  virtual std::string file_name() const = 0;
  /// What the file holds.
  virtual nlohmann::json file_state() const = 0;
  /// Takes it back, after the callbacks' other states. Not called where there is no file.
  virtual void load_file_state(const nlohmann::json& state) = 0;
};

}  // namespace gradus
