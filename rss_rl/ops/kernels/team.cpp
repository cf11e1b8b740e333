// Whether threads are at hand, or have to be started.

#include "team.h"

extern "C" int rss_has_team() { return rss::team() != nullptr; }
