#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gradus/core/error.h>
#include <gradus/distributed/process_group.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <mutex>

namespace gradus {
namespace {

std::string environment(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : otherwise;
}

std::string here_key(int64_t rank) { return fmt::format("here/{}", rank); }

[[noreturn]] void throw_missing(const LaunchEnvironment& here, const Rendezvous& place,
                                const std::string& who, const std::string& reason) {
  throw Error("G-DIST-3", ErrorKind::training,
              fmt::format("process {} of {} waited {} s at {}:{} for the others: {} ({})",
                          here.rank, here.world_size,
                          std::chrono::duration_cast<std::chrono::seconds>(place.timeout).count(),
                          place.address, place.port, who, reason.substr(0, reason.find('\n'))),
              "Check that all processes were started, with the same MASTER_ADDR, MASTER_PORT and "
              "WORLD_SIZE, and that this address can be reached from their machines.");
}

// A socket that only this machine can reach.
int listen_on_loopback(uint16_t port) {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int yes = 1;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (socket >= 0 && ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 &&
      ::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
      ::listen(socket, SOMAXCONN) == 0)
    return socket;
  const std::string reason = ::strerror(errno);
  if (socket >= 0) ::close(socket);
  throw std::runtime_error(reason);
}

}  // namespace

Rendezvous rendezvous_from_environment(const LaunchEnvironment& here) {
  Rendezvous place;
  const auto address = environment("MASTER_ADDR", "");
  const auto port = environment("MASTER_PORT", "29500");
  if (address.empty() && here.world_size > here.local_world_size)
    throw Error("G-DIST-1", ErrorKind::usage,
                fmt::format("{} processes on several machines, but MASTER_ADDR is not set",
                            here.world_size),
                "Set MASTER_ADDR to the name of the machine of rank 0, and MASTER_PORT to a free "
                "port there. torchrun sets both.");
  if (!address.empty()) place.address = address;
  const auto end = port.data() + port.size();
  const auto [stop, error] = std::from_chars(port.data(), end, place.port);
  if (error != std::errc() || stop != end || place.port == 0)
    throw Error("G-DIST-1", ErrorKind::usage,
                "environment variable MASTER_PORT: expected a port, received \"" + port + "\"",
                "Set it to a free port of the machine of rank 0, or unset it for 29500.");
  place.is_agents_store = environment("TORCHELASTIC_USE_AGENT_STORE", "False") == "True";
  place.attempt = environment("TORCHELASTIC_RESTART_COUNT", "0");
  return place;
}

std::shared_ptr<ProcessGroup> ProcessGroup::join(const LaunchEnvironment& here,
                                                 const Rendezvous& place) {
  // A process that ended shows as an exception then, and does not end this one too.
  ::signal(SIGPIPE, SIG_IGN);
  c10d::TCPStoreOptions options;
  options.port = place.port;
  options.isServer = here.rank == 0 && !place.is_agents_store;
  options.waitWorkers = false;
  options.timeout = place.timeout;
  const bool is_local = place.address == "127.0.0.1" || place.address == "localhost";
  c10::intrusive_ptr<c10d::Store> store;
  try {
    if (options.isServer && is_local) {
      // TCPStore would listen on all interfaces.
      options.useLibUV = false;
      options.masterListenFd = listen_on_loopback(place.port);
    }
    store = c10::make_intrusive<c10d::PrefixStore>(
        "gradus-" + place.attempt, c10::make_intrusive<c10d::TCPStore>(place.address, options));
  } catch (const std::exception& error) {
    throw_missing(here, place,
                  options.isServer ? "the store could not be opened"
                                   : "the store of process 0 cannot be reached",
                  error.what());
  }
  std::vector<std::string> keys;
  for (int64_t rank = 0; rank < here.world_size; ++rank) keys.push_back(here_key(rank));
  try {
    store->set(here_key(here.rank), std::vector<uint8_t>{'1'});
    store->wait(keys, place.timeout);
  } catch (const std::exception& error) {
    std::vector<int64_t> missing;
    try {
      for (int64_t rank = 0; rank < here.world_size; ++rank)
        if (!store->check({here_key(rank)})) missing.push_back(rank);
    } catch (const std::exception&) {
      throw_missing(here, place, "the store of process 0 has gone", error.what());
    }
    throw_missing(here, place,
                  fmt::format("missing {} {}", missing.size() == 1 ? "process" : "processes",
                              fmt::join(missing, ", ")),
                  error.what());
  }
  const bool is_one_machine = here.world_size == here.local_world_size;
  return std::make_shared<ProcessGroup>(std::move(store), here.rank, here.world_size, place.timeout,
                                        is_one_machine ? "127.0.0.1" : "");
}

std::shared_ptr<ProcessGroup> ProcessGroup::of_this_run(std::chrono::milliseconds timeout) {
  static std::mutex mutex;
  static std::shared_ptr<ProcessGroup> group;
  const auto here = launch_environment();
  if (here.world_size == 1) return nullptr;
  const std::scoped_lock lock(mutex);
  if (!group) {
    auto place = rendezvous_from_environment(here);
    place.timeout = timeout;
    group = join(here, place);
  }
  return group;
}

}  // namespace gradus
