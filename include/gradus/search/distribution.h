#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace gradus::search {

/// The values that a parameter of a search may have, as Optuna's distributions.
///
/// Samplers work with numbers. The number of a category is its place in the list, that of any other
/// value is the value itself. Thread-safety: a value, like std::string.
class Distribution {
 public:
  /// The three kinds: a real number, an integer, one of a list.
  enum class Kind {
    real,        ///< FloatDistribution
    integer,     ///< IntDistribution
    categorical  ///< CategoricalDistribution
  };

  /// A real number from `low` to `high`. `log` draws its logarithm; `step` allows only
  /// `low + k * step`, and lowers `high` to the last of them. Throws `Error` G-SEARCH-1 for bounds
  /// that hold nothing, for `log` with a bound that is not positive, and for `log` with a step.
  static Distribution real(double low, double high, bool log = false,
                           std::optional<double> step = std::nullopt);
  /// An integer from `low` to `high`, with the same rules.
  static Distribution integer(int64_t low, int64_t high, bool log = false, int64_t step = 1);
  /// One of `choices`: numbers, texts, booleans or null. Throws G-SEARCH-1 for an empty list.
  static Distribution categorical(std::vector<nlohmann::json> choices);
  /// From the text that a study holds, ours or Optuna's. Throws `Error` G-SEARCH-2.
  static Distribution from_json(const std::string& text);

  /// The text that a study holds; Optuna reads it.
  std::string to_json() const;
  /// Which kind it is.
  Kind kind() const { return kind_; }
  /// The least number.
  double low() const { return low_; }
  /// The greatest number.
  double high() const { return high_; }
  /// Whether the logarithm is drawn.
  bool log() const { return log_; }
  /// The distance of two values; unset for any real number.
  std::optional<double> step() const { return step_; }
  /// The list of a categorical one.
  const std::vector<nlohmann::json>& choices() const { return choices_; }
  /// Whether there is only one value.
  bool is_single() const;
  /// Whether the value of this number belongs to it.
  bool contains(double number) const;
  /// The value of a number, as a user sees it.
  nlohmann::json value_of(double number) const;
  /// The number of a value. Throws `Error` G-SEARCH-1 for one that is not a number, or not in the
  /// list.
  double number_of(const nlohmann::json& value) const;
  /// All values, where they can be counted: a list, or steps that are not logarithmic.
  std::optional<std::vector<nlohmann::json>> all_values() const;

  /// Whether both are the same.
  bool operator==(const Distribution& other) const = default;

 private:
  Kind kind_ = Kind::real;
  double low_ = 0, high_ = 1;
  bool log_ = false;
  std::optional<double> step_;
  std::vector<nlohmann::json> choices_;
};

}  // namespace gradus::search
