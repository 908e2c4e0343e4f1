/* Has nothing to do with HIP. */
int main(void) { return 0; }
