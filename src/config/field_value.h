#pragma once

#include <gradus/config/option_table.h>

#include <string>
#include <vector>

/// Options of every type, read, written and checked in one place each.
namespace gradus::config {

/// What an error says an option is: its rule and a label such as "--seed" or "run.yaml line 3:
/// seed".
struct FieldContext {
  const Rule& rule;
  std::string where;
  std::string_view help;
};

/// The value as JSON; not set is null.
nlohmann::json field_to_json(const OptionTypes::Reference& field);

/// Sets the field. Throws G-CONF-2 when the value has another type; the field is then as it was.
void field_from_json(const OptionTypes::Reference& field, const nlohmann::json& value,
                     const FieldContext& context);

/// The same from words of a command line; none means the bare flag.
void field_from_words(const OptionTypes::Reference& field, const std::vector<std::string>& words,
                      const FieldContext& context);

/// Throws G-CONF-3 when the value is out of bounds or not among the choices.
void check_field(const OptionTypes::Reference& field, const FieldContext& context);

/// "int", "float | None", "list[str]", …: the type in Python's spelling.
std::string field_type(const OptionTypes::Reference& field, const Rule& rule);

/// `true` and `false` need no word after the flag.
bool is_boolean(const OptionTypes::Reference& field);
/// Takes several words.
bool is_list(const OptionTypes::Reference& field);
/// Text, or a list of it: a YAML scalar is taken as it stands.
bool is_text(const OptionTypes::Reference& field);

/// yes/true/t/y/1 and no/false/f/n/0 in any case.
std::optional<bool> boolean_word(std::string_view word);

/// Strings inside a dictionary given as JSON text become what they look like: "true" a boolean,
/// "12" and "0.5" numbers. As in transformers, signs and exponents stay text.
void convert_strings(nlohmann::json& dictionary);

}  // namespace gradus::config
