// SPDX-License-Identifier: Apache-2.0
// A function: what it prints is the answer to the body that it reads.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(void)
{
	char name[256];
	size_t len = fread(name, 1, sizeof name - 1, stdin);
	name[len] = '\0';
	name[strcspn(name, "\r\n")] = '\0';
	const char *greeting = getenv("GREETING");
	fprintf(stderr, "greeting %s\n", name);
	printf("%s, %s!\n", greeting ? greeting : "Hello", *name ? name : "world");
	return 0;
}
