#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

namespace gradus {

/// Reads typed values out of a config.json and says clearly what is wrong with one.
///
/// Every method throws `Error` G-MODEL-5 (where, key, expected, received) for a value of another
/// type, out of bounds, NaN or infinite. A key that is absent or null gives the fallback; without a
/// fallback that is an error too. Holds a reference to `values`.
class ConfigReader {
 public:
  /// `aliases`: another name under which a key may be stored ("hidden_size" for "n_embd").
  explicit ConfigReader(const nlohmann::json& values, std::string where = "config.json",
                        std::map<std::string, std::string> aliases = {});

  int64_t integer(const std::string& name, std::optional<int64_t> fallback, int64_t at_least = 1,
                  int64_t at_most = int64_t{1} << 31) const;
  std::optional<int64_t> optional_integer(const std::string& name, int64_t at_least = 1,
                                          int64_t at_most = int64_t{1} << 31) const;
  double number(const std::string& name, std::optional<double> fallback, double at_least = -1e300,
                double at_most = 1e300) const;
  std::optional<double> optional_number(const std::string& name, double at_least = -1e300,
                                        double at_most = 1e300) const;
  /// A probability: at least 0, at most 1.
  double probability(const std::string& name, double fallback) const {
    return number(name, fallback, 0.0, 1.0);
  }
  bool flag(const std::string& name, bool fallback) const;
  std::string text(const std::string& name, std::optional<std::string> fallback) const;
  std::optional<std::string> optional_text(const std::string& name) const;

  /// The raw value; null when absent or null in the file.
  const nlohmann::json* find(const std::string& name) const;
  [[noreturn]] void fail(const std::string& name, const std::string& expected,
                         const std::string& received) const;

 private:
  const nlohmann::json& values_;
  std::string where_;
  std::map<std::string, std::string> aliases_;
};

/// Number of classes: `num_labels`, or the size of `id2label`; 2 when neither is there, as in
/// transformers.
int64_t num_labels(const nlohmann::json& config);

}  // namespace gradus
