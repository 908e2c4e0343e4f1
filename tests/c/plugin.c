/* A library that is loaded at run time and refers to HIP by ordinary references. */
#include <stdlib.h>
#include "hip.h"
void plugin_mark(size_t size) { MARK(size); }
#ifdef ENDS
/* Runs after the destructors of libraries that were preloaded. */
__attribute__((destructor)) static void plugin_ends(void) { MARK(2009); }
__attribute__((constructor)) static void plugin_begins(void) { MARK(2001); }
#endif
