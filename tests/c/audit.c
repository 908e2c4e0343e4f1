/* An auditor of the loader (LD_AUDIT): looks at every object and symbol, and changes nothing. */
#define _GNU_SOURCE
#include <link.h>
unsigned int la_version(unsigned int version) { return version; }
unsigned int la_objopen(struct link_map* map, Lmid_t space, uintptr_t* cookie) { return LA_FLG_BINDTO | LA_FLG_BINDFROM; }
uintptr_t la_symbind64(Elf64_Sym* symbol, unsigned int index, uintptr_t* from, uintptr_t* to, unsigned int* flags, const char* name) {
  return symbol->st_value;
}
