#include <gradus/config/trainer_arguments.h>
#include <gradus/core/error.h>

#include <cctype>

namespace gradus {

nlohmann::ordered_json detail::shown_values(const OptionSet& options) {
  auto dict = options.values();
  for (const auto& item : dict.items()) {
    if (!item.key().ends_with("_token")) continue;
    std::string upper = item.key();
    for (auto& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    item.value() = "<" + upper + ">";
  }
  return dict;
}

void TrainerArguments::throw_other_type() {
  throw Error("G-CONF-11", ErrorKind::internal,
              "the trainer's arguments are asked for as a struct that they are not",
              "Ask for the struct that the trainer was registered with.");
}

}  // namespace gradus
