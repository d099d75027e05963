#pragma once

#include <gradus/config/steps_or_ratio.h>
#include <gradus/config/string_or_list.h>

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

/// One place per option: the struct holds name, type and default; a table row beside it holds the
/// rest.
///
///     struct DataArguments {
///       std::optional<std::string> train_file = std::nullopt;
///       int64_t block_size = 1024;
///     };
///     constexpr OptionRow<DataArguments> kDataRows[] = {
///         {&DataArguments::train_file, "train_file", Group::data, any_value(), "The file."},
///         {&DataArguments::block_size, "block_size", Group::data, at_least(1), "Tokens a row."},
///     };
///
/// An `OptionSet` binds tables to objects and does the parsing, checking and explaining.
namespace gradus {

/// Headings of `--help` and of docs/user/options.md, in the order shown.
enum class Group {
  task,
  model,
  data,
  generation,
  trainer,
  output,
  duration,
  schedule,
  optimizer,
  regularization,
  precision,
  gradient_checkpointing,
  compilation,
  kernels,
  optimizations,
  logging,
  log_levels,
  tracking,
  evaluation,
  metrics,
  checkpoints,
  hub,
  best_model,
  resuming,
  reproducibility,
  hardware,
  accelerate,
  dataloader,
  ddp,
  fsdp,
  deepspeed,
  debugging,
  scripts,
  gradus,
  program,
};
/// The heading as people read it: "Learning rate and schedule".
std::string_view group_title(Group group);

/// Whose option it is: transformers has it too, or only gradus does.
enum class Origin { transformers, gradus };

/// What a `nlohmann::json` field may hold, besides null.
enum class Shape {
  plain,               ///< the field's own type says it
  dictionary,          ///< an object; on the command line as JSON text
  dictionary_or_path,  ///< an object, or the path of a file
  text_or_false,       ///< a string or false
};

/// What values an option takes. Made by the functions below.
struct Rule {
  double least = -std::numeric_limits<double>::infinity();  ///< the lowest number
  double most = std::numeric_limits<double>::infinity();    ///< the highest number
  bool least_open = false;                                  ///< `least` itself is out
  bool most_open = false;                                   ///< `most` itself is out
  std::span<const std::string_view> words = {};             ///< the choices, where they are fixed
  /// The choices, where they stand in a table that users may add to: `optimizer_names`.
  std::vector<std::string> (*table)() = nullptr;
  Shape shape = Shape::plain;  ///< for fields that hold JSON
  std::string_view type = {};  ///< in place of the type's own name
  /// A text option that may be given as a boolean: the words that true and false stand for.
  std::string_view when_true = {};
  std::string_view when_false = {};  ///< empty: not set
  /// A word that says that an option is not set, beside `none`; empty: there is none.
  std::string_view unset_word = {};

  /// The words to choose from, as they are now; empty: any value.
  std::vector<std::string> choices() const;

  /// The same rule for a type of another name.
  constexpr Rule typed(std::string_view name) const {
    Rule rule = *this;
    rule.type = name;
    return rule;
  }
  /// The same rule for an option that is unset by a word of its own, such as "auto".
  constexpr Rule unset_by(std::string_view word) const {
    Rule rule = *this;
    rule.unset_word = word;
    return rule;
  }
  /// The same rule for text that may also be given as a boolean.
  constexpr Rule boolean_as(std::string_view yes, std::string_view no) const {
    Rule rule = *this;
    rule.when_true = yes;
    rule.when_false = no;
    return rule;
  }
};

/// No bounds.
constexpr Rule any_value() { return {}; }
/// `least` is in.
constexpr Rule at_least(double least) { return {.least = least}; }
/// `least` is out.
constexpr Rule above(double least) { return {.least = least, .least_open = true}; }
/// Both ends are in.
constexpr Rule within(double least, double most) { return {.least = least, .most = most}; }
/// `least` is in, `most` is out.
constexpr Rule within_below(double least, double most) {
  return {.least = least, .most = most, .most_open = true};
}
/// One of these words.
constexpr Rule one_of(std::span<const std::string_view> words) { return {.words = words}; }
/// One of the names in a table that is asked each time.
constexpr Rule one_of(std::vector<std::string> (*table)()) { return {.table = table}; }
/// A JSON field of this shape.
constexpr Rule holds(Shape shape) { return {.shape = shape}; }

/// A list of types, as members of a struct and as pointers.
template <class... Types>
struct FieldTypes {
  /// A member of struct `S`, of one of the types.
  template <class S>
  using Member = std::variant<Types S::*...>;
  /// A field of one of the types.
  using Reference = std::variant<Types*...>;
};

/// The types an option may have.
using OptionTypes =
    FieldTypes<bool, int64_t, double, std::string, StepsOrRatio, StringOrList,
               std::vector<std::string>, std::optional<bool>, std::optional<int64_t>,
               std::optional<double>, std::optional<std::string>, std::optional<StepsOrRatio>,
               std::optional<StringOrList>, std::optional<std::vector<std::string>>,
               std::optional<std::vector<double>>, nlohmann::json>;

/// One option of struct `S`.
template <class S>
struct OptionRow {
  OptionTypes::Member<S> member;         ///< the field
  std::string_view name;                 ///< its name, as flags and files write it
  Group group;                           ///< the heading it stands under
  Rule rule;                             ///< what values it takes
  std::string_view help;                 ///< one or two sentences
  Origin origin = Origin::transformers;  ///< whose option it is
};

}  // namespace gradus
