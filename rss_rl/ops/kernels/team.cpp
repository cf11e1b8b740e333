// Whether there is a thread pool to share, or threads have to be started.

#include "vectors.h"

extern "C" int rss_has_team() { return rss::team() != nullptr; }
