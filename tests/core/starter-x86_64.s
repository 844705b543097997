# GNU assembler, Linux: what envbuild/core/userns/starter.py has in hexadecimal.
	.globl _start
_start:
	mov 8(%rsp), %rax          # argv[0] is not "=": an image starts this file itself
	cmpb $'=', (%rax)
	jne end
	mov $72, %eax              # fcntl(3, F_SETFD, FD_CLOEXEC)
	mov $3, %edi
	mov $2, %esi
	mov $1, %edx
	syscall
	mov (%rsp), %rcx           # argc
	mov 16(%rsp), %rdi         # argv[1]
	lea 24(%rsp), %rsi         # argv + 2
	lea 16(%rsp,%rcx,8), %rdx  # envp
	mov $59, %eax              # execve
	syscall
	push %rax
	mov $1, %eax               # write(3, &error, 8)
	mov $3, %edi
	mov %rsp, %rsi
	mov $8, %edx
	syscall
end:
	mov $60, %eax              # exit(126)
	mov $126, %edi
	syscall
