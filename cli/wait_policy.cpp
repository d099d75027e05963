// Makes OpenMP's threads spin only briefly while they wait, unless the user chose how they wait.
//
// LibTorch computes with OpenMP threads. libgomp lets a waiting thread spin for some milliseconds.
// On a machine whose cores are wanted by other programs too, it keeps a core from the very thread
// that it waits for, and a training becomes several times slower. With OMP_WAIT_POLICY=passive
// alone threads never spin; 4000 rounds are some 40 microseconds. docs/user/using-gradus.md has the
// figures.
//
// libgomp reads its environment in a constructor of the library, before main, so setting variables
// in main is too late. The functions of .preinit_array run before the constructors of all
// libraries. There libc has not yet taken over the environment, so variables cannot be set for this
// process either; the program is started anew with them. That costs some milliseconds, because
// LibTorch has not been initialized.
#include <alloca.h>
#include <limits.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <initializer_list>

namespace {

// Instrumented code must not run here: the sanitizers are not initialized either.
#define GRADUS_BEFORE_SANITIZERS __attribute__((no_sanitize("address", "thread", "undefined")))

GRADUS_BEFORE_SANITIZERS bool is_entry_of(const char* entry, const char* variable) {
  const size_t length = ::strlen(variable);
  return ::strncmp(entry, variable, length) == 0 && entry[length] == '=';
}

GRADUS_BEFORE_SANITIZERS void start_with_brief_spinning(int, char** argv, char** environment) {
  size_t count = 0;
  for (; environment[count] != nullptr; ++count)
    for (const char* variable : {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"})
      if (is_entry_of(environment[count], variable)) return;  // the user chose, or we did
  if (::getauxval(AT_BASE) == 0) return;  // started as an argument of the loader: nothing to start
  char program[PATH_MAX];
  const auto length = ::readlink("/proc/self/exe", program, sizeof(program) - 1);
  if (length <= 0) return;
  program[length] = '\0';
  auto** changed = static_cast<char**>(alloca((count + 3) * sizeof(char*)));
  ::memcpy(changed, environment, count * sizeof(char*));
  changed[count] = const_cast<char*>("OMP_WAIT_POLICY=passive");
  changed[count + 1] = const_cast<char*>("GOMP_SPINCOUNT=4000");
  changed[count + 2] = nullptr;
  ::execve(program, argv, changed);  // where this fails, the threads spin for longer
}

using EarlyFunction = void (*)(int, char**, char**);
__attribute__((section(".preinit_array"), used)) const EarlyFunction kRunsBeforeConstructors =
    start_with_brief_spinning;

}  // namespace
