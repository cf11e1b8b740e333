// torch's thread pool.

#pragma once

#include <dlfcn.h>

namespace rss {

// Runs a function in several of torch's threads, if they are OpenMP's. Others would have to be started
// while torch's idle ones still occupy their processors.
using Team = void (*)(void (*call)(void*), void* given, unsigned threads, unsigned flags);

inline Team team() {
  static const Team found = reinterpret_cast<Team>(dlsym(RTLD_DEFAULT, "GOMP_parallel"));
  return found;
}

}  // namespace rss
