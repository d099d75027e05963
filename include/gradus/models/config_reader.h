#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

namespace gradus {

/// Reads typed values from a config.json and reports bad ones clearly.
///
/// Every method throws `Error` G-MODEL-5 (where, key, expected, received) for a value of the wrong
/// type, out of bounds, NaN or infinite. A key that is absent or null gives the fallback; without a
/// fallback it is an error, too. The reader keeps a reference to the values, which must outlive it.
class ConfigReader {
 public:
  /// `where` names the file in messages. `aliases` maps a key to another name under which it may
  /// be stored ("n_embd" to "hidden_size").
  explicit ConfigReader(const nlohmann::json& values, std::string where = "config.json",
                        std::map<std::string, std::string> aliases = {});

  /// An integer from `at_least` to `at_most`.
  int64_t integer(const std::string& name, std::optional<int64_t> fallback, int64_t at_least = 1,
                  int64_t at_most = int64_t{1} << 31) const;
  /// As `integer`; unset when the key is absent or null.
  std::optional<int64_t> optional_integer(const std::string& name, int64_t at_least = 1,
                                          int64_t at_most = int64_t{1} << 31) const;
  /// A finite number from `at_least` to `at_most`.
  double number(const std::string& name, std::optional<double> fallback, double at_least = -1e300,
                double at_most = 1e300) const;
  /// As `number`; unset when the key is absent or null.
  std::optional<double> optional_number(const std::string& name, double at_least = -1e300,
                                        double at_most = 1e300) const;
  /// A number from 0 to 1.
  double probability(const std::string& name, double fallback) const {
    return number(name, fallback, 0.0, 1.0);
  }
  /// A boolean.
  bool flag(const std::string& name, bool fallback) const;
  /// A string.
  std::string text(const std::string& name, std::optional<std::string> fallback) const;
  /// As `text`; unset when the key is absent or null.
  std::optional<std::string> optional_text(const std::string& name) const;

  /// The raw value, or a null pointer when the key is absent or null.
  const nlohmann::json* find(const std::string& name) const;
  /// Throws `Error` G-MODEL-5 for the key `name`.
  [[noreturn]] void fail(const std::string& name, const std::string& expected,
                         const std::string& received) const;

 private:
  const nlohmann::json& values_;
  std::string where_;
  std::map<std::string, std::string> aliases_;
};

/// Number of classes: `num_labels`, else the size of `id2label`, else 2, as in transformers.
int64_t num_labels(const nlohmann::json& config);

}  // namespace gradus
