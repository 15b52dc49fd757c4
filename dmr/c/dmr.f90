! Malleable MPI applications in Fortran: libdmr's calls, which dmr.h describes, for programs that `use mpi`.
!
!     type(dmr_handler) :: parent, handler
!     parent = dmr_inherited(MPI_COMM_WORLD)              ! at the start: there in those that replace others
!     world = dmr_world()                                 ! use it in place of MPI_COMM_WORLD everywhere
!     if (dmr_there(parent)) then
!         code = dmr_receive(parent, step, 1 * 4_c_size_t)
!         code = dmr_receive_blocks(parent, field, rows, row_bytes)
!         call dmr_finish(parent)
!     end if
!     ...
!     action = dmr_check_status(world, 2, 32, 2, 0, size, handler)     ! between two steps
!     if (dmr_there(handler)) then                                     ! others go on: hand the data over, and end
!         code = dmr_send(handler, step, 1 * 4_c_size_t)
!         code = dmr_send_blocks(handler, field, rows, row_bytes)
!         call dmr_finish(handler)
!         call MPI_Finalize(code)
!         stop
!     end if
!
! A row is what is contiguous: of an array a(n, rows) the columns a(:, i). Rows, ranks of rows and places are counted
! from 1 here, MPI's ranks from 0. Functions give 0, or DMR_ERROR on all ranks; dmr_error_text says why. With `use mpi_f08`
! pass comm%MPI_VAL. Compile this file with the compiler of the program; link with -ldmr.
module dmr
    use, intrinsic :: iso_c_binding
    implicit none
    private

    integer, parameter, public :: DMR_ERROR = -1, DMR_NONE = 0, DMR_EXPAND = 1, DMR_SHRINK = 2

    ! A resize under way: the old processes' side of it, or the new ones'.
    type, public :: dmr_handler
        private
        type(c_ptr) :: it = c_null_ptr
    end type

    public :: dmr_check_status, dmr_icheck_status, dmr_inherited, dmr_world, dmr_there, dmr_size_before, dmr_finish
    public :: dmr_send, dmr_receive, dmr_send_blocks, dmr_receive_blocks, dmr_send_cyclic, dmr_receive_cyclic
    public :: dmr_send_irregular, dmr_receive_irregular
    public :: dmr_block_bounds, dmr_cyclic_rows, dmr_cyclic_row, dmr_error_text

    interface
        integer(c_int) function c_check(comm, minimum, maximum, factor, preferred, later, size, handler) &
                bind(C, name="dmr_check_status_f")
            import :: c_int, c_ptr
            integer(c_int), value :: comm, minimum, maximum, factor, preferred, later
            integer(c_int), intent(out) :: size
            type(c_ptr), intent(out) :: handler
        end function
        type(c_ptr) function c_inherited(comm) bind(C, name="dmr_inherited_f")
            import :: c_int, c_ptr
            integer(c_int), value :: comm
        end function
        integer(c_int) function c_world() bind(C, name="dmr_world_f")
            import :: c_int
        end function
        integer(c_int) function c_size_before(handler) bind(C, name="dmr_size_before")
            import :: c_int, c_ptr
            type(c_ptr), value :: handler
        end function
        subroutine c_finish(handler) bind(C, name="dmr_finish")
            import :: c_ptr
            type(c_ptr), value :: handler
        end subroutine
        integer(c_int) function c_send(handler, data, bytes) bind(C, name="dmr_send")
            import :: c_int, c_ptr, c_size_t
            type(c_ptr), value :: handler, data
            integer(c_size_t), value :: bytes
        end function
        integer(c_int) function c_receive(handler, data, bytes) bind(C, name="dmr_receive")
            import :: c_int, c_ptr, c_size_t
            type(c_ptr), value :: handler, data
            integer(c_size_t), value :: bytes
        end function
        integer(c_int) function c_send_blocks(handler, data, rows, row_bytes) bind(C, name="dmr_send_blocks")
            import :: c_int, c_ptr, c_size_t, c_int64_t
            type(c_ptr), value :: handler, data
            integer(c_int64_t), value :: rows
            integer(c_size_t), value :: row_bytes
        end function
        integer(c_int) function c_receive_blocks(handler, data, rows, row_bytes) bind(C, name="dmr_receive_blocks")
            import :: c_int, c_ptr, c_size_t, c_int64_t
            type(c_ptr), value :: handler, data
            integer(c_int64_t), value :: rows
            integer(c_size_t), value :: row_bytes
        end function
        integer(c_int) function c_send_cyclic(handler, data, rows, row_bytes, block) bind(C, name="dmr_send_cyclic")
            import :: c_int, c_ptr, c_size_t, c_int64_t
            type(c_ptr), value :: handler, data
            integer(c_int64_t), value :: rows, block
            integer(c_size_t), value :: row_bytes
        end function
        integer(c_int) function c_receive_cyclic(handler, data, rows, row_bytes, block) &
                bind(C, name="dmr_receive_cyclic")
            import :: c_int, c_ptr, c_size_t, c_int64_t
            type(c_ptr), value :: handler, data
            integer(c_int64_t), value :: rows, block
            integer(c_size_t), value :: row_bytes
        end function
        integer(c_int) function c_send_irregular(handler, data, rows, count, row_bytes) &
                bind(C, name="dmr_send_irregular")
            import :: c_int, c_ptr, c_size_t, c_int64_t
            type(c_ptr), value :: handler, data
            integer(c_int64_t), intent(in) :: rows(*)
            integer(c_int64_t), value :: count
            integer(c_size_t), value :: row_bytes
        end function
        integer(c_int) function c_receive_irregular(handler, data, rows, count, row_bytes) &
                bind(C, name="dmr_receive_irregular")
            import :: c_int, c_ptr, c_size_t, c_int64_t
            type(c_ptr), value :: handler, data
            integer(c_int64_t), intent(in) :: rows(*)
            integer(c_int64_t), value :: count
            integer(c_size_t), value :: row_bytes
        end function
        subroutine c_block_bounds(rows, size, rank, start, stop) bind(C, name="dmr_block_bounds")
            import :: c_int, c_int64_t
            integer(c_int64_t), value :: rows
            integer(c_int), value :: size, rank
            integer(c_int64_t), intent(out) :: start, stop
        end subroutine
        integer(c_int64_t) function c_cyclic_rows(rows, block, size, rank) bind(C, name="dmr_cyclic_rows")
            import :: c_int, c_int64_t
            integer(c_int64_t), value :: rows, block
            integer(c_int), value :: size, rank
        end function
        integer(c_int64_t) function c_cyclic_row(at, block, size, rank) bind(C, name="dmr_cyclic_row")
            import :: c_int, c_int64_t
            integer(c_int64_t), value :: at, block
            integer(c_int), value :: size, rank
        end function
        subroutine c_error(text, length) bind(C, name="dmr_error_f")
            import :: c_int, c_char
            character(kind=c_char), intent(out) :: text(*)
            integer(c_int), value :: length
        end subroutine
    end interface

contains

    integer function dmr_check_status(comm, minimum, maximum, factor, preferred, size, handler)
        integer, intent(in) :: comm, minimum, maximum, factor, preferred
        integer, intent(out) :: size
        type(dmr_handler), intent(out) :: handler
        dmr_check_status = c_check(comm, minimum, maximum, factor, preferred, 0, size, handler%it)
    end function

    integer function dmr_icheck_status(comm, minimum, maximum, factor, preferred, size, handler)
        integer, intent(in) :: comm, minimum, maximum, factor, preferred
        integer, intent(out) :: size
        type(dmr_handler), intent(out) :: handler
        dmr_icheck_status = c_check(comm, minimum, maximum, factor, preferred, 1, size, handler%it)
    end function

    type(dmr_handler) function dmr_inherited(comm)
        integer, intent(in) :: comm
        dmr_inherited%it = c_inherited(comm)
    end function

    integer function dmr_world()
        dmr_world = c_world()
    end function

    ! Whether there is a resize under way.
    pure logical function dmr_there(handler)
        type(dmr_handler), intent(in) :: handler
        dmr_there = c_associated(handler%it)
    end function

    integer function dmr_size_before(handler)
        type(dmr_handler), intent(in) :: handler
        dmr_size_before = c_size_before(handler%it)
    end function

    subroutine dmr_finish(handler)
        type(dmr_handler), intent(inout) :: handler
        call c_finish(handler%it)
        handler%it = c_null_ptr
    end subroutine

    integer function dmr_send(handler, data, bytes)
        type(dmr_handler), intent(in) :: handler
        type(*), contiguous, target, intent(in) :: data(..)
        integer(c_size_t), intent(in) :: bytes
        dmr_send = c_send(handler%it, c_loc(data), bytes)
    end function

    integer function dmr_receive(handler, data, bytes)
        type(dmr_handler), intent(in) :: handler
        type(*), contiguous, target, intent(inout) :: data(..)
        integer(c_size_t), intent(in) :: bytes
        dmr_receive = c_receive(handler%it, c_loc(data), bytes)
    end function

    integer function dmr_send_blocks(handler, block, rows, row_bytes)
        type(dmr_handler), intent(in) :: handler
        type(*), contiguous, target, intent(in) :: block(..)
        integer(c_int64_t), intent(in) :: rows
        integer(c_size_t), intent(in) :: row_bytes
        dmr_send_blocks = c_send_blocks(handler%it, c_loc(block), rows, row_bytes)
    end function

    integer function dmr_receive_blocks(handler, block, rows, row_bytes)
        type(dmr_handler), intent(in) :: handler
        type(*), contiguous, target, intent(inout) :: block(..)
        integer(c_int64_t), intent(in) :: rows
        integer(c_size_t), intent(in) :: row_bytes
        dmr_receive_blocks = c_receive_blocks(handler%it, c_loc(block), rows, row_bytes)
    end function

    integer function dmr_send_cyclic(handler, mine, rows, row_bytes, block)
        type(dmr_handler), intent(in) :: handler
        type(*), contiguous, target, intent(in) :: mine(..)
        integer(c_int64_t), intent(in) :: rows, block
        integer(c_size_t), intent(in) :: row_bytes
        dmr_send_cyclic = c_send_cyclic(handler%it, c_loc(mine), rows, row_bytes, block)
    end function

    integer function dmr_receive_cyclic(handler, mine, rows, row_bytes, block)
        type(dmr_handler), intent(in) :: handler
        type(*), contiguous, target, intent(inout) :: mine(..)
        integer(c_int64_t), intent(in) :: rows, block
        integer(c_size_t), intent(in) :: row_bytes
        dmr_receive_cyclic = c_receive_cyclic(handler%it, c_loc(mine), rows, row_bytes, block)
    end function

    integer function dmr_send_irregular(handler, mine, rows, row_bytes)
        type(dmr_handler), intent(in) :: handler
        type(*), contiguous, target, intent(in) :: mine(..)
        integer(c_int64_t), intent(in) :: rows(:)
        integer(c_size_t), intent(in) :: row_bytes
        dmr_send_irregular = c_send_irregular(handler%it, c_loc(mine), rows - 1, size(rows, kind=c_int64_t), row_bytes)
    end function

    integer function dmr_receive_irregular(handler, mine, rows, row_bytes)
        type(dmr_handler), intent(in) :: handler
        type(*), contiguous, target, intent(inout) :: mine(..)
        integer(c_int64_t), intent(in) :: rows(:)
        integer(c_size_t), intent(in) :: row_bytes
        dmr_receive_irregular = c_receive_irregular(handler%it, c_loc(mine), rows - 1, size(rows, kind=c_int64_t), row_bytes)
    end function

    ! The rows first..last of a rank.
    subroutine dmr_block_bounds(rows, size, rank, first, last)
        integer(c_int64_t), intent(in) :: rows
        integer, intent(in) :: size, rank
        integer(c_int64_t), intent(out) :: first, last
        call c_block_bounds(rows, size, rank, first, last)
        first = first + 1
    end subroutine

    integer(c_int64_t) function dmr_cyclic_rows(rows, block, size, rank)
        integer(c_int64_t), intent(in) :: rows, block
        integer, intent(in) :: size, rank
        dmr_cyclic_rows = c_cyclic_rows(rows, block, size, rank)
    end function

    integer(c_int64_t) function dmr_cyclic_row(at, block, size, rank)
        integer(c_int64_t), intent(in) :: at, block
        integer, intent(in) :: size, rank
        dmr_cyclic_row = c_cyclic_row(at - 1, block, size, rank) + 1
    end function

    ! What the last DMR_ERROR was about.
    function dmr_error_text() result(text)
        character(len=512) :: text
        call c_error(text, len(text))
    end function
end module
