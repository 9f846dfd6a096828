"""Operations below the module: captured on both sides, paired, and the guilty one named."""
