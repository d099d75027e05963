#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace gradus {

/// One setting that an optimizer takes, and where the optimizer keeps it.
///
/// Plain text stands for a setting kept under its own name: `{"momentum", {"beta1", "betas"}}`.
struct OptimSetting {
  /// Kept under its own name.
  OptimSetting(const char* name) : name(name), group_key(name) {}  // NOLINT: meant to convert
  /// Kept under another key.
  OptimSetting(const char* name, const char* group_key) : name(name), group_key(group_key) {}

  std::string name;  ///< as users write it
  /// The key of the parameter groups in `Optimizer::state_dict` that holds the value.
  std::string group_key;
};

/// The text of `--optim_args`, "momentum=0.9,nesterov=true", for one optimizer.
///
/// Names are checked when it is made, values when they are read. Every failure is an `Error`
/// G-OPTIM-7 that names the optimizer and the setting. Thread-safety: none.
class OptimArgs {
 public:
  /// `optimizer` is named in messages; `known` are the settings it takes.
  OptimArgs(std::string optimizer, const std::string& text, const std::vector<OptimSetting>& known);

  /// The name of the optimizer, as `--optim` has it.
  const std::string& optimizer() const { return optimizer_; }

  /// The text given for a setting; unset when it was not given.
  std::optional<std::string> text(const std::string& name) const;

  /// Puts the value given for a setting into `value`, which stays as it is when none was given.
  void read(const std::string& name, double& value) const;
  /// The same for whole numbers.
  void read(const std::string& name, int64_t& value) const;
  /// The same for true and false, also as 1, 0, yes and no.
  void read(const std::string& name, bool& value) const;
  /// The same for a value that may be absent: None leaves it as it is.
  template <class T>
  void read(const std::string& name, std::optional<T>& value) const {
    const auto given = text(name);
    if (!given || *given == "None") return;
    T inner{};
    read(name, inner);
    value = inner;
  }

 private:
  /// Throws G-OPTIM-7.
  [[noreturn]] void refuse(const std::string& what, const std::string& advice = {}) const;

  std::string optimizer_;
  std::vector<std::string> known_;  // the names of the settings it takes
  std::map<std::string, std::string> values_;
};

}  // namespace gradus
