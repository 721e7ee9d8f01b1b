"""Operations that change rows, columns or data files."""
