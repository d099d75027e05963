#include <gradus/core/error.h>
#include <gradus/core/printable.h>

namespace gradus {
namespace {

std::string render(const std::string& id, const std::string& message, const std::string& advice) {
  std::string text = "gradus: " + message + " [" + id + "]";
  if (advice.empty()) return text;
  text += "\n  ";
  for (const char c : advice) {
    text += c;
    if (c == '\n') text += "  ";
  }
  return text;
}

}  // namespace

Error::Error(std::string id, ErrorKind kind, std::string message, std::string advice)
    : std::runtime_error(render(id, printable(message), printable(advice))),
      id_(std::move(id)),
      kind_(kind),
      message_(printable(message)),
      advice_(printable(advice)) {}

}  // namespace gradus
