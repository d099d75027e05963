#include <gradus/models/layers/no_dropout.h>

namespace gradus::layers {
namespace {
thread_local bool dropout_is_off = false;
}

NoDropout::NoDropout(bool on) : before_(dropout_is_off) { dropout_is_off |= on; }
NoDropout::~NoDropout() { dropout_is_off = before_; }
bool NoDropout::is_on() { return dropout_is_off; }

}  // namespace gradus::layers
