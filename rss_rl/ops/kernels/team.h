// The threads that torch has.

#pragma once

#include <dlfcn.h>

namespace rss {

// Calls a function in some threads at once: those that torch has, where they are OpenMP's. Others would
// have to be started, and torch's idle ones keep their processors for a while.
using Team = void (*)(void (*call)(void*), void* given, unsigned threads, unsigned flags);

inline Team team() {
  static const Team found = reinterpret_cast<Team>(dlsym(RTLD_DEFAULT, "GOMP_parallel"));
  return found;
}

}  // namespace rss
