#include "core/mapped_reads.h"

#include <gradus/core/error.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>

namespace gradus {
namespace {

/// One mapping. The handler of SIGBUS reads it, so everything that it needs is atomic.
struct Mapping {
  std::atomic<uintptr_t> begin{0};  // 0: free
  std::atomic<uintptr_t> end{0};
  std::atomic<bool> is_cut{false};
  std::filesystem::path file;  // under the mutex
};

/// More than anybody maps at a time. What does not fit is left to the system's SIGBUS.
constexpr size_t kMostMappings = 4096;

struct Mappings {
  std::mutex mutex;
  std::array<Mapping, kMostMappings> all;
  std::atomic<size_t> used{0};  // none beyond this was ever taken
  std::atomic<int> readers{0};  // live `MappedReads`
  uintptr_t page = uintptr_t(::sysconf(_SC_PAGESIZE));
  struct sigaction former{};
};

// Never destroyed: mappings may be removed by static destructors.
Mappings& mappings() {
  static auto& instance = *new Mappings;
  return instance;
}

Mapping* mapping_at(uintptr_t address) {
  auto& known = mappings();
  for (size_t i = 0; i < known.used.load(std::memory_order_acquire); ++i) {
    const auto begin = known.all[i].begin.load(std::memory_order_acquire);
    if (begin != 0 && address >= begin && address < known.all[i].end.load()) return &known.all[i];
  }
  return nullptr;
}

/// Puts zeros in place of everything from the page of `address` on: it lies behind the file's end.
bool read_as_zeros(Mapping& mapping, uintptr_t address) {
  const auto from = address & ~(mappings().page - 1);
  const auto size = (mapping.end - from + mappings().page - 1) & ~(mappings().page - 1);
  // NOLINTNEXTLINE(performance-no-int-to-ptr)
  if (::mmap(reinterpret_cast<void*>(from), size, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
    return false;
  mapping.is_cut = true;
  return true;
}

/// Only what a signal handler may do.
void on_bus_error(int signal, siginfo_t* info, void* context) {
  auto& known = mappings();
  auto* mapping =
      info->si_code > 0 ? mapping_at(reinterpret_cast<uintptr_t>(info->si_addr)) : nullptr;
  if (mapping != nullptr && known.readers.load() > 0 &&
      read_as_zeros(*mapping, reinterpret_cast<uintptr_t>(info->si_addr)))
    return;
  if (mapping != nullptr) {
    constexpr char kText[] =
        "gradus: a file became shorter while its content was in use; the process ends by SIGBUS\n";
    if (::write(STDERR_FILENO, kText, sizeof kText - 1) < 0) {
    }
  }
  const auto& former = known.former;
  if ((former.sa_flags & SA_SIGINFO) != 0) {
    former.sa_sigaction(signal, info, context);
  } else if (former.sa_handler == SIG_DFL || former.sa_handler == SIG_IGN) {
    ::sigaction(signal, &former, nullptr);
    ::raise(signal);
  } else {
    former.sa_handler(signal);
  }
}

void install_handler() {
  static const bool installed = [] {
    struct sigaction action{};
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    ::sigemptyset(&action.sa_mask);
    return ::sigaction(SIGBUS, &action, &mappings().former) == 0;
  }();
  static_cast<void>(installed);
}

}  // namespace

MappedReads::MappedReads() {
  install_handler();
  ++mappings().readers;
}

MappedReads::~MappedReads() { --mappings().readers; }

void MappedReads::check() const {
  auto& known = mappings();
  const std::scoped_lock lock(known.mutex);
  for (size_t i = 0; i < known.used; ++i) {
    const auto& mapping = known.all[i];
    if (mapping.begin == 0 || !mapping.is_cut) continue;
    throw Error("G-IO-4", ErrorKind::io,
                "cannot read " + mapping.file.string() + ": it became shorter while it was read",
                "Another program wrote to it or cut it. Files of models and checkpoints must stay "
                "as they are while they are loaded; copy the file again.");
  }
}

void add_mapping(const char* begin, size_t size, const std::filesystem::path& file) {
  auto& known = mappings();
  const std::scoped_lock lock(known.mutex);
  size_t place = 0;
  while (place < known.used && known.all[place].begin != 0) ++place;
  if (place == kMostMappings) return;
  auto& mapping = known.all[place];
  mapping.file = file;
  mapping.is_cut = false;
  mapping.end = reinterpret_cast<uintptr_t>(begin) + size;
  mapping.begin = reinterpret_cast<uintptr_t>(begin);
  if (place == known.used) known.used = place + 1;
}

void remove_mapping(const char* begin) {
  auto& known = mappings();
  const std::scoped_lock lock(known.mutex);
  for (size_t i = 0; i < known.used; ++i)
    if (known.all[i].begin == reinterpret_cast<uintptr_t>(begin)) {
      known.all[i].begin = 0;
      return;
    }
}

}  // namespace gradus
