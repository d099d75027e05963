#include "kernels/single_use.h"

#include <utility>

namespace gradus::kernels {
namespace {

thread_local bool graphs_are_used_once = false;

}  // namespace

SingleUse::SingleUse() : before_(std::exchange(graphs_are_used_once, true)) {}
SingleUse::~SingleUse() { graphs_are_used_once = before_; }
bool SingleUse::is_on() { return graphs_are_used_once; }

}  // namespace gradus::kernels
