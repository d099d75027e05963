#include <gradus/core/error.h>
#include <gradus/core/printable.h>

#include <algorithm>

namespace gradus {
namespace {

std::string render(const std::string& id, const std::string& message, const std::string& advice) {
  // The first line ends with the id, however many there are.
  const auto end = std::min(message.find('\n'), message.size());
  std::string text = "gradus: " + message.substr(0, end) + " [" + id + "]" + message.substr(end);
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
