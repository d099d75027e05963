#pragma once

#include <gradus/config/option_table.h>

#include <filesystem>
#include <set>

namespace gradus {

/// The options of one command: tables bound to the objects they fill.
///
///     OptionSet options;
///     options.add(args, training_options());
///     options.add(data, std::span(kDataRows));
///     if (options.parse(words).help) …
///
/// The objects must outlive the set; their values when added are the defaults that `help` shows.
/// Every failure is an `Error` of kind usage:
/// G-CONF-1 unknown name, G-CONF-2 wrong type, G-CONF-3 not allowed, G-CONF-6 unusable file,
/// G-CONF-7 malformed line. Thread-safety: none; one thread at a time.
class OptionSet {
 public:
  /// What a command line held besides options.
  struct Line {
    bool help = false;                               ///< --help or -h was there; nothing was parsed
    std::optional<std::filesystem::path> file = {};  ///< the config file, already read
  };

  /// Adds one option for each row. Throws G-CONF-9 (internal) when a name is there already.
  template <class S>
  void add(S& target, std::span<const OptionRow<S>> rows) {
    for (const auto& row : rows) {
      auto reference = std::visit(
          [&](auto member) { return OptionTypes::Reference(&(target.*member)); }, row.member);
      add_field(reference, row);
    }
  }

  /// One option: `row` without its member, for a field of another struct. Throws as `add`.
  template <class S>
  void add_field(OptionTypes::Reference field, const OptionRow<S>& row) {
    add(field, row.name, row.group, row.rule, row.help, row.origin);
  }

  /// Reads `[config.yaml|config.json] --flags…`; the file may also be given as `--config FILE`.
  /// Flags win over the file wherever it stands, later flags over earlier. Forms: `--a_b v`, `--a-b
  /// v`, `--a=v`, `--flag`, `--flag false`, `--no_flag`, `--list a b c`, `--dict '{"a": 1}'`.
  Line parse(std::span<const std::string> words);

  /// A YAML (.yaml, .yml) or JSON (.json) file with one option a key.
  void read_file(const std::filesystem::path& file);

  /// A dictionary with one option a key; `where` names it in errors.
  void read_dict(const nlohmann::json& dict, const std::string& where);

  /// Checks bounds and choices of every option, also of those set in code.
  void check() const;

  /// Whether a flag, file or dictionary named this option.
  bool was_set(const std::string& name) const { return set_.contains(name); }

  /// Current values by name, in table order.
  nlohmann::ordered_json values() const;

  /// The options in groups, `width` columns wide, with defaults and choices.
  std::string help(int width = 96) const;

  /// `[{"name", "type", "default", "choices", "group", "help", "origin"}]`, as `gradus options
  /// --json` prints it.
  nlohmann::ordered_json describe() const;

  /// A Markdown section a group, with a table each.
  std::string markdown() const;

 private:
  struct Option {
    OptionTypes::Reference field;
    std::string_view name;
    Group group;
    Rule rule;
    std::string_view help;
    Origin origin;
    nlohmann::json default_value;
  };

  void add(OptionTypes::Reference field, std::string_view name, Group group, const Rule& rule,
           std::string_view help, Origin origin);
  const Option* find(std::string_view name) const;
  const Option& find_flag(const std::string& flag, bool& negated) const;
  [[noreturn]] void throw_unknown(const std::string& name, const std::string& where) const;
  std::vector<std::string> take_words(const Option& option, std::span<const std::string> words,
                                      size_t& next) const;
  void assign(const Option& option, const nlohmann::json& value, const std::string& where);
  void read_yaml(const std::string& text, const std::filesystem::path& file);
  void read_json_text(const std::string& text, const std::filesystem::path& file);
  std::vector<Group> groups() const;

  std::vector<Option> options_;
  std::set<std::string> set_;
};

}  // namespace gradus
