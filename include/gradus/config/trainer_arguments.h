#pragma once

#include <gradus/config/training_options.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <type_traits>

/// Arguments of trainers that add options of their own to `TrainingArguments`.
///
/// They are a plain struct: first every field of `TrainingArguments`, then the trainer's own. A
/// table has one row for each of its own fields. From these two come flags, config files, `--help`,
/// checks, `to_dict` and the options page. The struct lies in the file pair of its trainer:
///
///     struct FocalArguments {
///     #include <gradus/config/training_arguments_fields.inc>
///       double focal_gamma = 2.0;
///
///       static std::span<const gradus::OptionRow<FocalArguments>> own_options();
///       operator gradus::TrainingArguments() const { return gradus::common_arguments(*this); }
///     };
///
/// A struct that derives or checks more than its rows say has a member `resolved()` too, which ends
/// with `return gradus::resolve_fields(args);`.
namespace gradus {

/// The defaults of `TrainingArguments`, one function for each field.
///
/// A trainer with other defaults derives from it and hides those that differ, then names its class
/// before it includes the fields. A function may also return a `std::optional` of the field's type:
/// the field then has that type, and "not set" can be told from a value.
///
///     struct SFTDefaults : gradus::TrainingDefaults {
///       static double learning_rate() { return 2e-5; }
///       static gradus::StepsOrRatio logging_steps() { return 10; }
///       static std::optional<bool> bf16() { return std::nullopt; }
///     };
///     struct SFTConfig {
///     #define GRADUS_DEFAULTS SFTDefaults
///     #include <gradus/config/training_arguments_fields.inc>
struct TrainingDefaults {
#define GRADUS_FIELD(type, name, ...) \
  static type name() { return __VA_ARGS__; }
#include <gradus/config/training_arguments_fields.inc>
};

/// A struct with the fields of `TrainingArguments` and a table of its own.
template <class Arguments>
concept HasOwnOptions = requires {
  { Arguments::own_options() } -> std::convertible_to<std::span<const OptionRow<Arguments>>>;
};

namespace detail {

// Copies a field between two argument structs, whose types may differ as `TrainingDefaults` says.
template <class To, class From>
void copy_field(To& to, const From& from) {
  to = from;
}
// A field that may be unset leaves the other as it is.
template <class T>
void copy_field(T& to, const std::optional<T>& from) {
  if (from) to = *from;
}

/// The values of all options of a set; those of tokens are hidden as `<HUB_TOKEN>`.
nlohmann::ordered_json shown_values(const OptionSet& options);

}  // namespace detail

/// The fields of `TrainingArguments` in `args`.
template <class Arguments>
TrainingArguments common_arguments(const Arguments& args) {
  TrainingArguments common;
#define GRADUS_FIELD(type, name, ...) detail::copy_field(common.name, args.name);
#include <gradus/config/training_arguments_fields.inc>
  return common;
}

/// Sets the fields of `TrainingArguments` in `args`; the trainer's own stay as they are.
template <class Arguments>
void set_common_arguments(Arguments& args, const TrainingArguments& common) {
#define GRADUS_FIELD(type, name, ...) detail::copy_field(args.name, common.name);
#include <gradus/config/training_arguments_fields.inc>
}

/// Adds the options that the trainer adds to those of `TrainingArguments`; none for
/// `TrainingArguments` itself. `args` must outlive the set.
template <class Arguments>
void add_own_options([[maybe_unused]] OptionSet& options, [[maybe_unused]] Arguments& args) {
  if constexpr (HasOwnOptions<Arguments>)
    options.add(args, std::span<const OptionRow<Arguments>>(Arguments::own_options()));
}

/// Adds every option: those of `TrainingArguments`, then the trainer's own. The values of `args`
/// are the defaults that `--help` shows. `args` must outlive the set.
template <class Arguments>
void add_options(OptionSet& options, Arguments& args) {
  [[maybe_unused]] auto row = training_options().begin();
#define GRADUS_FIELD(type, name, ...) options.add_field(&args.name, *row++);
#include <gradus/config/training_arguments_fields.inc>
  add_own_options(options, args);
}

/// The arguments with the fields of `TrainingArguments` resolved and all values checked, as
/// `TrainingArguments::resolved` does. What a struct's own `resolved()` ends with.
template <class Arguments>
Arguments resolve_fields(const Arguments& args) {
  Arguments resolved = args;
  set_common_arguments(resolved, common_arguments(args).resolved());
  OptionSet options;
  add_own_options(options, resolved);
  options.check();
  return resolved;
}

/// The arguments resolved: by their own `resolved()` where they have one.
template <class Arguments>
Arguments resolve_arguments(const Arguments& args) {
  if constexpr (requires { args.resolved(); })
    return args.resolved();
  else
    return resolve_fields(args);
}

/// Every option by name, in the order of the struct; tokens are hidden as `<HUB_TOKEN>`.
template <class Arguments>
nlohmann::ordered_json arguments_to_dict(Arguments args) {
  OptionSet options;
  add_options(options, args);
  return detail::shown_values(options);
}

/// From a dictionary with some or all options. Throws `Error` G-CONF-1 for unknown keys and
/// G-CONF-2 for wrong types.
template <class Arguments>
Arguments arguments_from_json(const nlohmann::json& dict) {
  Arguments args;
  OptionSet options;
  add_options(options, args);
  options.read_dict(dict, "arguments");
  return args;
}

/// The arguments of some trainer, for code that does not know their type: the command line, tasks.
/// Thread-safety: none.
class TrainerArguments {
 public:
  virtual ~TrainerArguments() = default;

  /// Adds every option to a set. This object must outlive the set.
  virtual void add_to(OptionSet& options) = 0;
  /// Adds only what the trainer adds to the options of `TrainingArguments`.
  virtual void add_own_to(OptionSet& options) = 0;
  /// The fields of `TrainingArguments`.
  virtual TrainingArguments common() const = 0;
  /// Sets them; those that only the trainer has stay as they are.
  virtual void set_common(const TrainingArguments& common) = 0;
  /// Replaces the values by those that `resolve_arguments` gives.
  virtual void resolve() = 0;

  /// The struct itself. Throws `Error` G-CONF-11 (internal) when it is another one.
  template <class Arguments>
  Arguments& as();
  /// The same to read only.
  template <class Arguments>
  const Arguments& as() const {
    return const_cast<TrainerArguments*>(this)->as<Arguments>();
  }

 protected:
  /// Throws G-CONF-11.
  [[noreturn]] static void throw_other_type();
};

/// The arguments of a trainer whose struct is `Arguments`.
template <class Arguments>
class ArgumentsOf final : public TrainerArguments {
 public:
  /// Starts from `args`.
  explicit ArgumentsOf(Arguments args = {}) : value(std::move(args)) {}

  // See TrainerArguments.
  void add_to(OptionSet& options) override { add_options(options, value); }
  void add_own_to(OptionSet& options) override { add_own_options(options, value); }
  TrainingArguments common() const override { return TrainingArguments(value); }
  void set_common(const TrainingArguments& common) override { set_common_arguments(value, common); }
  void resolve() override { value = resolve_arguments(value); }

  Arguments value;  ///< the struct itself; may be changed at any time
};

template <class Arguments>
Arguments& TrainerArguments::as() {
  auto* found = dynamic_cast<ArgumentsOf<Arguments>*>(this);
  if (found == nullptr) throw_other_type();
  return found->value;
}

}  // namespace gradus
