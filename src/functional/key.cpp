#include <gradus/functional/key.h>

namespace gradus::functional {
namespace {

// splitmix64: every input gives another output, and neighbours have nothing in common.
uint64_t mixed(uint64_t value) {
  value += 0x9E3779B97F4A7C15;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EB;
  return value ^ (value >> 31);
}

constexpr uint64_t kSeedStream = 0xA0761D6478BD642F;
constexpr uint64_t kSplitStream = 0xE7037ED1A0B428DB;

}  // namespace

Key Key::split() const { return Key(mixed(value_)); }

std::vector<Key> Key::split(int64_t count) const {
  std::vector<Key> keys;
  for (int64_t i = 0; i < count; ++i)
    keys.push_back(Key(value_ ^ kSplitStream).fold_in(uint64_t(i)));
  return keys;
}

Key Key::fold_in(uint64_t number) const { return Key(mixed(mixed(value_) ^ mixed(number))); }

uint64_t Key::seed() const { return mixed(value_ ^ kSeedStream); }

}  // namespace gradus::functional
