/* A minimal MPI program: each rank works on the device, the ranks exchange sums, nobody waits for the others at the end. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include "hip.h"
int main(int argc, char** argv) {
  int rank, sum = 0;
  unsigned char back[4096];
  void* memory;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (hipMalloc(&memory, 4096) || hipMemset(memory, rank + 1, 4096)) MPI_Abort(MPI_COMM_WORLD, 2);
  if (hipMemcpy(back, memory, 4096, hipMemcpyDeviceToHost) || back[99] != rank + 1) MPI_Abort(MPI_COMM_WORLD, 3);
  int mine = back[7];
  MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (hipFree(memory)) MPI_Abort(MPI_COMM_WORLD, 4);
  MPI_Finalize();
  if (rank == 0) printf("sum %d\n", sum);
  return 0;
}
