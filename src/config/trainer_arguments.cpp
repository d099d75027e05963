#include <gradus/config/trainer_arguments.h>
#include <gradus/core/error.h>

#include "config/hidden_tokens.h"

namespace gradus {

nlohmann::ordered_json detail::shown_values(const OptionSet& options) {
  auto dict = options.values();
  for (const auto& item : dict.items())
    if (const auto hidden = config::hidden_form(item.key()); !hidden.empty()) item.value() = hidden;
  return dict;
}

void TrainerArguments::throw_other_type() {
  throw Error("G-CONF-11", ErrorKind::internal,
              "the trainer's arguments are asked for as a struct that they are not",
              "Ask for the struct that the trainer was registered with.");
}

}  // namespace gradus
