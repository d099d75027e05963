#include "core/registry.h"

namespace gradus {

void throw_registered_twice(const std::string& function, const std::string& name) {
  throw Error("G-REG-1", ErrorKind::usage, function + ": '" + name + "' is there already",
              "Choose another name, and register each name once, before it is used.");
}

void check_registration(const std::string& function, const std::string& name, bool has_maker) {
  if (name.empty())
    throw Error("G-REG-2", ErrorKind::usage, function + " received an empty name",
                "Give the name that options and files will use.");
  if (!has_maker)
    throw Error("G-REG-2", ErrorKind::usage, function + ": '" + name + "' comes without a function",
                "Give a function that makes it.");
}

}  // namespace gradus
